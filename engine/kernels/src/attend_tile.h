// Attention of many query rows: scores and sums are dense products over lanes of query rows.
// Scores are logarithms to the base of 2.
#pragma once

namespace RP_NS {

constexpr int kTileRows = 384;        // most query rows that share converted keys and values
constexpr int kTileNumbers = 49152;   // and the most numbers of them: they must stay in the cache

RP_INLINE int tile_rows(int size) {
    const int rows = kTileNumbers / size / kLanes * kLanes;
    return rows < kLanes ? kLanes : rows < kTileRows ? rows : kTileRows;
}

// Scratch of one tile, row-major; rows in blocks of kLanes.
struct Tile {
    int16_t* q;        // (blocks, D / 2, kLanes, 2)
    float* out;        // (blocks, D, kLanes)
    float* scores;     // (kDenseKeys, kLanes)
    int16_t* weights;  // (kDenseKeys / 2, kLanes, 2)
    float* q_scale;    // (rows)
    float* place;      // (rows)
    float* top;        // (rows)
    float* weight;     // (rows)
    TileKeys k;
};

// Pieces of scratch, each at a cache line.
struct Room {
    uint8_t* p;
    template <class T>
    RP_INLINE_MEMBER T* take(int64_t count) {
        T* result = reinterpret_cast<T*>(p);
        p += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
        return result;
    }
};

static Tile lay_out_tile(uint8_t* scratch, int size) {
    const int rows = tile_rows(size);
    Room room{scratch};
    Tile t;
    t.q = room.take<int16_t>(size * rows);
    t.out = room.take<float>(size * rows);
    t.scores = room.take<float>(kDenseKeys * kLanes);
    t.weights = room.take<int16_t>(kDenseKeys * kLanes);
    for (float** row : {&t.q_scale, &t.place, &t.top, &t.weight}) *row = room.take<float>(rows);
    t.k.keys = room.take<int16_t>(size * kDenseKeys);
    t.k.values = room.take<int16_t>(size * kDenseKeys);
    for (float** key : {&t.k.key_scale, &t.k.value_log, &t.k.value_inverse})
        *key = room.take<float>(kDenseKeys);
    for (TokenRow& row : t.k.row) row = {room.take<float>(size), room.take<float>(size), 0, 0};
    t.k.size = size;
    return t;
}

// One block of lanes and the keys that some row of it sees, padded to a multiple of four.
struct Block {
    int index;
    int vectors;  // of lanes that hold a row
    int64_t first_key;
    int keys;
    int64_t oldest, newest;  // places of its first and its last row
};

// Scores of the first V vectors of lanes, with the logarithm of the values' scale added.
template <int V>
static RP_NOINLINE void tile_scores(const Tile& t, const Block& block) {
    const int16_t* q = t.q + static_cast<int64_t>(block.index) * t.k.size * kLanes;
    const float* q_scale = t.q_scale + block.index * kLanes;
    for (int key = 0; key < block.keys; key += 4) {
        S sum[4 * V];
        dense<4, V>({t.k.keys + key * t.k.size, t.k.size, 2}, q, t.k.size / 2, sum);
        float* scores = t.scores + key * kLanes;
        const float *scale = t.k.key_scale + key, *log = t.k.value_log + key;
        each<4 * V>([&](auto j) RP_LAMBDA {
            const F s = fmul(fcvt(stotal(sum[j])), fset(scale[j / V]));
            fstore(scores + j / V * kLanes + j % V * R,
                   ffma(s, fload(q_scale + j % V * R), fset(log[j / V])));
        });
    }
}

// out = out * old + weights times values * now.
template <int V>
static RP_NOINLINE void tile_values(const Tile& t, const Block& block, const F (&old)[V],
                                    const F (&now)[V]) {
    float* out = t.out + static_cast<int64_t>(block.index) * t.k.size * kLanes;
    for (int i = 0; i < t.k.size; i += 4, out += 4 * kLanes) {
        S sum[4 * V];
        dense<4, V>({t.k.values + 2 * i, 2, 2 * t.k.size}, t.weights, block.keys / 2, sum);
        each<4 * V>([&](auto j) RP_LAMBDA {
            float* p = out + j / V * kLanes + j % V * R;
            fstore(p, ffma(fcvt(stotal(sum[j])), now[j % V], fmul(fload(p), old[j % V])));
        });
    }
}

// Hide keys a row may not see: those after it, those before its window.
static void tile_mask(const Tile& t, const Block& block, int window) {
    const int64_t last = block.first_key + block.keys - 1;
    if (last <= block.oldest && (window == 0 || block.first_key > block.newest - window)) return;
    const F reach = fset(window > 0 ? static_cast<float>(window) : 1e9f);
    for (int v = 0; v < block.vectors; ++v) {
        const F place = fload(t.place + block.index * kLanes + v * R);
        const F oldest = fsub(place, reach);
        for (int key = 0; key < block.keys; ++key) {
            float* p = t.scores + key * kLanes + v * R;
            const F at = fset(static_cast<float>(block.first_key + key));
            const F s = fselect_gt(at, place, fset(kMasked), fload(p));
            fstore(p, fselect_gt(at, oldest, s, fset(kMasked)));
        }
    }
}

static void tile_cap(const Tile& t, const Block& block, float cap) {
    for (int key = 0; key < block.keys; ++key) {
        const F log = fset(t.k.value_log[key]);
        float* p = t.scores + key * kLanes;
        for (int v = 0; v < block.vectors; ++v, p += R)
            fstore(p, fadd(cap_scores(fsub(fload(p), log), cap * kLog2E), log));
    }
}

// Scores become weights relative to the largest ones; sum: of the weights.
template <int V>
RP_INLINE void tile_weights(const Tile& t, int keys, const F (&largest)[V], F (&sum)[V]) {
    each<V>([&](auto v) RP_LAMBDA { sum[v] = fzero(); });
    for (int key = 0; key < keys; ++key) {
        float* p = t.scores + key * kLanes;
        each<V>([&](auto v) RP_LAMBDA {
            const F x = fexp2(fsub(fload(p + v * R), largest[v]));
            fstore(p + v * R, x);
            sum[v] = fadd(sum[v], x);
        });
    }
}

// weight: of every row, what divides its sum of values.
template <int V>
RP_INLINE void quantize_weights(const Tile& t, int keys, const F (&scale)[V], F (&weight)[V]) {
    each<V>([&](auto v) RP_LAMBDA { weight[v] = fzero(); });
    for (int key = 0; key < keys; key += 2) {
        const float* p = t.scores + key * kLanes;
        const F inverse = fset(t.k.value_inverse[key]), next = fset(t.k.value_inverse[key + 1]);
        each<V>([&](auto v) RP_LAMBDA {
            const F x = fload(p + v * R), y = fload(p + kLanes + v * R);
            weight[v] = ffma(y, next, ffma(x, inverse, weight[v]));
            hstore(t.weights + key * kLanes + 2 * v * R, fmul(x, scale[v]), fmul(y, scale[v]));
        });
    }
}

template <int V>
RP_INLINE void largest_scores(const Tile& t, int keys, F (&largest)[V]) {
    each<V>([&](auto v) RP_LAMBDA { largest[v] = fload(t.scores + v * R); });
    for (int key = 1; key < keys; ++key)
        each<V>([&](auto v) RP_LAMBDA {
            largest[v] = fmaxv(largest[v], fload(t.scores + key * kLanes + v * R));
        });
}

// Scores become int16 weights. old, now: factors of what was summed before and of what is now.
template <int V>
static RP_NOINLINE void tile_soften(const Tile& t, const Block& block, F (&old)[V],
                                    F (&now)[V]) {
    F largest[V], sum[V], weight[V], scale[V];
    largest_scores(t, block.keys, largest);
    tile_weights(t, block.keys, largest, sum);
    for (int v = 0; v < V; ++v) {
        // A whole number, so that the largest weight is exact.
        const F most = fminv(fdiv(fset(kWeightSum), sum[v]), fset(kLargestWeight));
        scale[v] = fround(fsub(most, fset(0.5f)));
    }
    quantize_weights(t, block.keys, scale, weight);
    for (int v = 0; v < V; ++v) {
        const int64_t row = block.index * kLanes + v * R;
        const F before = fload(t.top + row), top = fmaxv(before, largest[v]);
        const F factor = fexp2(fsub(largest[v], top));
        old[v] = fexp2(fsub(before, top));
        now[v] = fdiv(fmul(factor, fset(power_of_two(-kValueBits))), scale[v]);
        fstore(t.weight + row, ffma(fload(t.weight + row), old[v], fmul(weight[v], factor)));
        fstore(t.top + row, top);
    }
}

// A batch row and a query head.
struct RowHead {
    int64_t row;
    int head;
};

// The query rows of one tile: those of one key/value head, heads of a batch row side by side.
struct QueryRows {
    const RpAttend& args;
    const rp::Worker& worker;
    const rp::PlanItem& item;
    int64_t first;
    int count;
    int first_head;  // of the key/value head
    int per_kv;
    int64_t place;  // of the first batch row of the item

    RP_INLINE_MEMBER RowHead at(int i) const {
        const uint32_t number = static_cast<uint32_t>(first + i);
        const uint32_t row = number / static_cast<uint32_t>(per_kv);
        return {item.row_start + row, first_head + static_cast<int>(number - row * per_kv)};
    }
    RP_INLINE_MEMBER int64_t place_at(int i) const {
        return place + at(i < count ? i : count - 1).row - item.row_start;
    }
};

static void load_rows(const QueryRows& rows, const Tile& t) {
    const int padded = (rows.count + kLanes - 1) / kLanes * kLanes;
    std::memset(t.q, 0, sizeof(int16_t) * static_cast<size_t>(t.k.size * padded));
    std::memset(t.out, 0, sizeof(float) * static_cast<size_t>(t.k.size * padded));
    for (int i = 0; i < padded; ++i) {
        float scale = 0.0f;
        if (i < rows.count) {
            const RowHead at = rows.at(i);
            const float* q = rows.args.q + at.row * rows.args.q_stride + at.head * t.k.size;
            int16_t* out = t.q + i / kLanes * kLanes * t.k.size + i % kLanes * 2;
            scale = quantize_query(q, t.k.size, t.k.keys, out, 2 * kLanes) * kLog2E;
        }
        t.q_scale[i] = scale;
        t.place[i] = static_cast<float>(rows.place_at(i));
        t.top[i] = kNothing;
        t.weight[i] = 0.0f * scale;
    }
}

static void store_rows(const QueryRows& rows, const Tile& t) {
    for (int i = 0; i < rows.count; ++i) {
        const RowHead at = rows.at(i);
        float* sums = partial_sums(rows.args, rows.worker, rows.item.slot, at.row, at.head);
        float* stats = partial_stats(rows.args, rows.worker, rows.item.slot, at.row, at.head);
        const float* out = t.out + i / kLanes * kLanes * t.k.size + i % kLanes;
        for (int d = 0; d < t.k.size; ++d) sums[d] = out[d * kLanes];
        stats[0] = t.top[i] * (1.0f / kLog2E);
        stats[1] = t.weight[i];
    }
}

template <int V>
static void attend_vectors(const RpAttend& args, const Tile& t, const Block& block) {
    tile_scores<V>(t, block);
    if (args.soft_cap > 0.0f) tile_cap(t, block, args.soft_cap);
    tile_mask(t, block, args.slab->window);
    F old[V], now[V];
    tile_soften<V>(t, block, old, now);
    tile_values<V>(t, block, old, now);
}

// One tile of n keys for the query rows of one block of lanes.
static void attend_block(const QueryRows& rows, const Tile& t, int index, int64_t first_key, int n) {
    const int64_t oldest = rows.place_at(index * kLanes);
    const int64_t newest = rows.place_at((index + 1) * kLanes - 1);
    const int window = rows.args.slab->window;
    const int64_t seen = newest + 1 - first_key < n ? newest + 1 - first_key : n;
    if (seen <= 0 || (window > 0 && first_key + n <= oldest - window + 1)) return;
    const int vectors = (rows.count - index * kLanes + R - 1) / R;
    const Block block{index, vectors < 3 ? vectors : 3, first_key, static_cast<int>(seen + 3) / 4 * 4,
                      oldest, newest};
    if (vectors == 1) return attend_vectors<1>(rows.args, t, block);
    if (vectors == 2) return attend_vectors<2>(rows.args, t, block);
    attend_vectors<3>(rows.args, t, block);
}

// Tiles begin at multiples of their size whatever the first key is: which keys a row's tiles hold
// must not depend on the rows beside it.
static void attend_rows(const QueryRows& rows, int kv_head) {
    const RpAttend& args = rows.args;
    Tile t = lay_out_tile(rows.worker.scratch, args.head_dim);
    load_rows(rows, t);
    const int64_t visible = rows.place_at(rows.count - 1) + 1;
    const int64_t last = visible < rows.item.key_end ? visible : rows.item.key_end;
    for (int64_t key = rows.item.key_start; key < last;) {
        const int64_t next = (key / kDenseKeys + 1) * kDenseKeys;
        const int n = static_cast<int>((next < last ? next : last) - key);
        convert_keys(t.k, *args.slab, rows.item, kv_head, key, n);
        for (int block = 0; block * kLanes < rows.count; ++block)
            attend_block(rows, t, block, key, n);
        key += n;
    }
    store_rows(rows, t);
}

static void attend_many(const RpAttend& args, const rp::Worker& worker, const rp::PlanItem& item,
                        int kv_head) {
    const int per_kv = args.num_heads / args.num_kv_heads;
    const int64_t total = static_cast<int64_t>(item.row_end - item.row_start) * per_kv;
    const int64_t place = place_of(*worker.step, *args.slab, item.row_start);
    const int most = tile_rows(args.head_dim);
    for (int64_t first = 0; first < total; first += most) {
        const int count = static_cast<int>(total - first < most ? total - first : most);
        attend_rows({args, worker, item, first, count, kv_head * per_kv, per_kv, place}, kv_head);
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
    if (item.is_dense) return attend_many(args, worker, item, kv_head);
    switch (args.slab->codec) {
        case RP_F16: return attend_few<CodecF16>(args, worker, item, kv_head);
        case RP_BF16: return attend_few<CodecBF16>(args, worker, item, kv_head);
        default: return attend_few<CodecF32>(args, worker, item, kv_head);
    }
}

}  // namespace RP_NS
