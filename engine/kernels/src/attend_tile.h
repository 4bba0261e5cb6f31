// Attention of many query rows: scores and sums are dense products over lanes of query rows.
#pragma once

namespace RP_NS {

constexpr int kLanes = 3 * R;          // query rows of one dense product
constexpr int kTileRows = 4 * kLanes;  // query rows that share converted keys and values

// Scratch of one tile; all matrices row-major.
struct Tile {
    float* q;         // (D, kTileRows)
    float* out;       // (D, kTileRows)
    float* keys;      // (kTileKeys, D)
    float* values;    // (kTileKeys, D)
    float* scores;    // (kTileKeys, kLanes)
    float* place;     // (kTileRows)
    float* top;       // (kTileRows)
    float* weight;    // (kTileRows)
};

RP_INLINE Tile lay_out_tile(uint8_t* scratch, int size) {
    float* p = reinterpret_cast<float*>(scratch);
    Tile t;
    t.q = p;
    t.out = t.q + size * kTileRows;
    t.keys = t.out + size * kTileRows;
    t.values = t.keys + size * kTileKeys;
    t.scores = t.values + size * kTileKeys;
    t.place = t.scores + kTileKeys * kLanes;
    t.top = t.place + kTileRows;
    t.weight = t.top + kTileRows;
    return t;
}

// Element (r, i) of the left matrix is p[r * row + i * step].
struct Operand {
    const float* p;
    int64_t row, step;
};

// sum += four rows of a, (4, k), times b, (k, kLanes).
RP_INLINE void dense4(Operand a, const float* b, int64_t b_stride, int k, F (&sum)[12]) {
    for (int i = 0; i < k; ++i) {
        const float* line = b + i * b_stride;
        const F b0 = fload(line), b1 = fload(line + R), b2 = fload(line + 2 * R);
        each<4>([&](auto r) RP_LAMBDA {
            const F x = fset(a.p[r * a.row + i * a.step]);
            sum[3 * r] = ffma(x, b0, sum[3 * r]);
            sum[3 * r + 1] = ffma(x, b1, sum[3 * r + 1]);
            sum[3 * r + 2] = ffma(x, b2, sum[3 * r + 2]);
        });
    }
}

static void tile_scores(const Tile& t, int size, int block, int keys) {
    for (int key = 0; key < keys; key += 4) {
        F sum[12];
        each<12>([&](auto j) RP_LAMBDA { sum[j] = fzero(); });
        const Operand a{t.keys + key * size, size, 1};
        dense4(a, t.q + block * kLanes, kTileRows, size, sum);
        each<12>([&](auto j) RP_LAMBDA { fstore(t.scores + key * kLanes + j * R, sum[j]); });
    }
}

static void tile_values(const Tile& t, int size, int block, int keys, const F (&factor)[3]) {
    for (int i = 0; i < size; i += 4) {
        F sum[12];
        float* out = t.out + i * kTileRows + block * kLanes;
        each<12>([&](auto j) RP_LAMBDA {
            sum[j] = fmul(fload(out + j / 3 * kTileRows + j % 3 * R), factor[j % 3]);
        });
        const Operand a{t.values + i, 1, size};
        dense4(a, t.scores, kLanes, keys, sum);
        each<12>([&](auto j) RP_LAMBDA {
            fstore(out + j / 3 * kTileRows + j % 3 * R, sum[j]);
        });
    }
}

// Whether some row of the lanes may not see some of the keys.
static bool is_masked(const Tile& t, const RpSlab& slab, int block, int64_t first_key, int keys) {
    if (slab.window > 0) return true;
    F oldest = fset(-1e9f);
    for (int v = 0; v < 3; ++v)
        oldest = fmaxv(oldest, fsub(fzero(), fload(t.place + block * kLanes + v * R)));
    return static_cast<float>(first_key + keys - 1) > -fmaxh(oldest);
}

// Hide keys a row may not see: those after it, those before its window.
static void tile_mask(const Tile& t, const RpSlab& slab, int block, int64_t first_key, int keys) {
    if (!is_masked(t, slab, block, first_key, keys)) return;
    for (int v = 0; v < 3; ++v) {
        const F place = fload(t.place + block * kLanes + v * R);
        const float window = slab.window > 0 ? static_cast<float>(slab.window) : 1e9f;
        const F oldest = fsub(place, fset(window));
        for (int key = 0; key < keys; ++key) {
            float* p = t.scores + key * kLanes + v * R;
            const F at = fset(static_cast<float>(first_key + key));
            const F s = fselect_gt(at, place, fset(kMasked), fload(p));
            fstore(p, fselect_gt(at, oldest, s, fset(kMasked)));
        }
    }
}

static void tile_cap(const Tile& t, int keys, float cap) {
    for (int i = 0; i < keys * kLanes; i += R)
        fstore(t.scores + i, cap_scores(fload(t.scores + i), cap));
}

// Scores become weights; factor: for what was summed before.
static void tile_soften(const Tile& t, int block, int keys, F (&factor)[3]) {
    for (int v = 0; v < 3; ++v) {
        float* scores = t.scores + v * R;
        float* top = t.top + block * kLanes + v * R;
        float* weight = t.weight + block * kLanes + v * R;
        F largest = fload(top);
        for (int key = 0; key < keys; ++key) largest = fmaxv(largest, fload(scores + key * kLanes));
        F sum = fzero();
        for (int key = 0; key < keys; ++key) {
            const F p = fexp(fsub(fload(scores + key * kLanes), largest));
            fstore(scores + key * kLanes, p);
            sum = fadd(sum, p);
        }
        factor[v] = fexp(fsub(fload(top), largest));
        fstore(weight, ffma(fload(weight), factor[v], sum));
        fstore(top, largest);
    }
}

// Query row number i of an item: its batch row and head.
struct RowOf {
    int64_t row;
    int head;
};

RP_INLINE RowOf row_of(const RpAttend& args, const rp::PlanItem& item, int kv_head, int64_t i) {
    const int per_kv = args.num_heads / args.num_kv_heads;
    return {item.row_start + i / per_kv, kv_head * per_kv + static_cast<int>(i % per_kv)};
}

static void load_tile(const RpAttend& args, const rp::Worker& worker, const rp::PlanItem& item,
                      int kv_head, int64_t first, int rows, const Tile& t) {
    const int size = args.head_dim;
    std::memset(t.q, 0, sizeof(float) * static_cast<size_t>(2 * size * kTileRows));
    for (int i = 0; i < kTileRows; ++i) {
        t.top[i] = kNothing;
        t.weight[i] = 0.0f;
        t.place[i] = 1e8f;
        if (i >= rows) continue;
        const RowOf at = row_of(args, item, kv_head, first + i);
        t.place[i] = static_cast<float>(place_of(*worker.step, *args.slab, at.row));
        const float* q = args.q + at.row * args.q_stride + at.head * size;
        for (int d = 0; d < size; ++d) t.q[d * kTileRows + i] = q[d];
    }
}

static void store_tile_rows(const RpAttend& args, const rp::Worker& worker,
                            const rp::PlanItem& item, int kv_head, int64_t first, int rows,
                            const Tile& t) {
    for (int i = 0; i < rows; ++i) {
        const RowOf at = row_of(args, item, kv_head, first + i);
        float* sums = partial_sums(args, worker, item.slot, at.row, at.head);
        float* stats = partial_stats(args, worker, item.slot, at.row, at.head);
        for (int d = 0; d < args.head_dim; ++d) sums[d] = t.out[d * kTileRows + i];
        stats[0] = t.top[i];
        stats[1] = t.weight[i];
    }
}

RP_INLINE void convert_scaled(const uint8_t* row, int size, float scale, float* out) {
    for (int i = 0; i < size; i += R) fstore(out + i, fmul(fload_s8(row + i), fset(scale)));
}

// Values of 4 bits; scales: one float16 per group of 32.
RP_INLINE void convert_nibbles(const uint8_t* row, int size, const uint8_t* scales, float* out) {
    for (int g = 0; g < size / kNibbleGroup; ++g) {
        const float scale = load_f16(scales + 2 * g);
        for (int i = 0; i < kNibbleGroup / 2; i += R) {
            const Nibbles x = fload_u4(row + g * kNibbleGroup / 2 + i);
            float* p = out + g * kNibbleGroup + i;
            fstore(p, fmul(fsub(x.low, fset(8.0f)), fset(scale)));
            fstore(p + kNibbleGroup / 2, fmul(fsub(x.high, fset(8.0f)), fset(scale)));
        }
    }
}

RP_INLINE void convert_packed(const RpAttend& args, const rp::PlanItem& item, int kv_head,
                              int64_t token, float* key, float* value) {
    const int size = args.head_dim;
    const PackedRun run = packed_run(*args.slab, item.blocks, token, kv_head, size);
    convert_scaled(run.keys, size, load_f16(run.key_scales), key);
    if (args.slab->packed->codec == RP_K8V4)
        convert_nibbles(run.values, size, run.value_scales, value);
    else
        convert_scaled(run.values, size, load_f16(run.value_scales), value);
}

template <class Codec>
RP_INLINE void convert_exact(const RpAttend& args, const rp::PlanItem& item, int kv_head,
                             int64_t token, float* key, float* value) {
    const int size = args.head_dim;
    const uint8_t* row = key_row(*args.slab, item.blocks, token, kv_head, size * Codec::kBytes);
    const int64_t distance = value_distance(*args.slab);
    for (int i = 0; i < size; i += R) {
        fstore(key + i, Codec::load(row, i));
        fstore(value + i, Codec::load(row + distance, i));
    }
}

// Convert n keys and values from their blocks; rows up to the next multiple of four become 0.
template <class Codec>
static void convert_keys(const RpAttend& args, const rp::PlanItem& item, int kv_head,
                         int64_t first, int n, const Tile& t) {
    const int size = args.head_dim;
    for (int i = 0; i < n; ++i) {
        float *key = t.keys + i * size, *value = t.values + i * size;
        if (is_packed(*args.slab, item.is_packed, first + i))
            convert_packed(args, item, kv_head, first + i, key, value);
        else
            convert_exact<Codec>(args, item, kv_head, first + i, key, value);
    }
    const size_t left = static_cast<size_t>((4 - n % 4) % 4 * size) * sizeof(float);
    std::memset(t.keys + n * size, 0, left);
    std::memset(t.values + n * size, 0, left);
}

// One tile of n keys for the query rows of one block of lanes.
static void attend_block(const RpAttend& args, const Tile& t, int block, int64_t first, int n) {
    const int keys = (n + 3) / 4 * 4;
    tile_scores(t, args.head_dim, block, keys);
    if (args.soft_cap > 0.0f) tile_cap(t, keys, args.soft_cap);
    tile_mask(t, *args.slab, block, first, n);
    for (int i = n * kLanes; i < keys * kLanes; ++i) t.scores[i] = kMasked;
    F factor[3];
    tile_soften(t, block, keys, factor);
    tile_values(t, args.head_dim, block, keys, factor);
}

template <class Codec>
static void attend_rows(const RpAttend& args, const rp::Worker& worker, const rp::PlanItem& item,
                        int kv_head, int64_t first_row, int rows) {
    const Tile t = lay_out_tile(worker.scratch, args.head_dim);
    load_tile(args, worker, item, kv_head, first_row, rows, t);
    const RowOf newest = row_of(args, item, kv_head, first_row + rows - 1);
    const int64_t visible = place_of(*worker.step, *args.slab, newest.row) + 1;
    const int64_t last = visible < item.key_end ? visible : item.key_end;
    const int blocks = (rows + kLanes - 1) / kLanes;
    for (int64_t key = item.key_start; key < last; key += kTileKeys) {
        const int n = static_cast<int>(last - key < kTileKeys ? last - key : kTileKeys);
        convert_keys<Codec>(args, item, kv_head, key, n, t);
        for (int block = 0; block < blocks; ++block) attend_block(args, t, block, key, n);
    }
    store_tile_rows(args, worker, item, kv_head, first_row, rows, t);
}

template <class Codec>
static void attend_item(const RpAttend& args, const rp::Worker& worker, const rp::PlanItem& item,
                        int kv_head) {
    const int64_t rows = item.row_end - item.row_start;
    if (rows < rp::kDenseRows) return attend_few<Codec>(args, worker, item, kv_head);
    const int64_t total = rows * (args.num_heads / args.num_kv_heads);
    for (int64_t first = 0; first < total; first += kTileRows) {
        const int64_t left = total - first;
        attend_rows<Codec>(args, worker, item, kv_head, first,
                           static_cast<int>(left < kTileRows ? left : kTileRows));
    }
}

static int64_t count_attend(const void* pointer, const rp::Worker& worker) {
    const RpAttend& args = *static_cast<const RpAttend*>(pointer);
    return static_cast<int64_t>(worker.plans[args.slab->group].num_items) * args.num_kv_heads;
}

static void attend(const void* pointer, const rp::Worker& worker, int64_t piece) {
    const RpAttend& args = *static_cast<const RpAttend*>(pointer);
    const rp::Plan& plan = worker.plans[args.slab->group];
    const rp::PlanItem& item = plan.items[piece / args.num_kv_heads];
    const int kv_head = static_cast<int>(piece % args.num_kv_heads);
    switch (args.slab->codec) {
        case RP_F16: return attend_item<CodecF16>(args, worker, item, kv_head);
        case RP_BF16: return attend_item<CodecBF16>(args, worker, item, kv_head);
        default: return attend_item<CodecF32>(args, worker, item, kv_head);
    }
}

}  // namespace RP_NS
