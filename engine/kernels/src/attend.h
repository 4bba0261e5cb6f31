// Attention over block slabs, online softmax. A piece of work is a plan item and a kv head.
// Few query rows: keys and values are read once for up to four heads. Many: dense tiles.
#pragma once

namespace RP_NS {

constexpr float kMasked = -1e30f;
constexpr float kNothing = -1e20f;  // above kMasked, so that a masked key weighs exactly 0
constexpr int kTileKeys = 64;

RP_INLINE F cap_scores(F s, float cap) {
    return cap > 0.0f ? fmul(fset(cap), ftanh(fmul(s, fset(1.0f / cap)))) : s;
}

// Keys first..last-1 that the query at this place may see.
struct Visible {
    int64_t first, last;
};

RP_INLINE Visible visible_keys(const RpSlab& slab, int64_t place) {
    const int64_t first = slab.window > 0 ? place - slab.window + 1 : 0;
    return {first > 0 ? first : 0, place + 1};
}

RP_INLINE float* partial_sums(const RpAttend& args, const rp::Worker& worker, int slot,
                              int64_t row, int head) {
    const int64_t at = (slot * worker.step->num_rows + row) * args.num_heads + head;
    return worker.partials.sums + at * args.head_dim;
}

RP_INLINE float* partial_stats(const RpAttend& args, const rp::Worker& worker, int slot,
                               int64_t row, int head) {
    const int64_t at = (slot * worker.step->num_rows + row) * args.num_heads + head;
    return worker.partials.stats + at * 2;
}

// ---- few rows -------------------------------------------------------------------------------

// Rows and vectors that are worked on at once: as many sums as registers hold.
constexpr int keys_at_once(int heads) { return heads < 4 || R > 8 ? 4 : 2; }
constexpr int vectors_at_once(int heads) { return heads == 1 ? 8 : heads < 4 || R > 8 ? 4 : 2; }

// scores[h][t] = q[h] . key t, for n keys of one block; some scores after the last are overwritten.
template <class Codec, int H>
RP_INLINE void score_keys(const float* q, int size, const uint8_t* keys, const uint8_t* next, int n,
                          float* scores) {
    constexpr int T = keys_at_once(H);
    for (int t = 0; t < n; t += T) {
        const uint8_t* key[T];
        for (int j = 0; j < T; ++j) {
            const int at = t + j < n ? t + j : n - 1;
            key[j] = keys + static_cast<int64_t>(at) * size * Codec::kBytes;
        }
        const uint8_t* ahead = next + static_cast<int64_t>(t) * size * Codec::kBytes;
        F sum[H * T];
        each<H * T>([&](auto j) RP_LAMBDA { sum[j] = fzero(); });
        for (int i = 0; i < size; i += R, ahead += R * T * Codec::kBytes) {
            prefetch(ahead, R * T * Codec::kBytes);
            each<T>([&](auto j) RP_LAMBDA {
                const F k = Codec::load(key[j], i);
                each<H>([&](auto h) RP_LAMBDA {
                    sum[h * T + j] = ffma(k, fload(q + h * size + i), sum[h * T + j]);
                });
            });
        }
        float sums[H * T];
        each<H * T / 4>([&](auto j) RP_LAMBDA { fsum4(sums + 4 * j, &sum[4 * j]); });
        for (int h = 0; h < H; ++h)
            std::memcpy(scores + h * kTileKeys + t, sums + h * T, sizeof(float) * T);
    }
}

// out[h][i..i+V*R) += sum over keys of weights[h][t] * value t.
template <class Codec, int H, int V>
RP_INLINE void add_values(const float* weights, int size, int i, const uint8_t* values,
                          const uint8_t* next, int n, float* out) {
    F sum[H * V];
    each<H * V>([&](auto j) RP_LAMBDA { sum[j] = fload(out + j / V * size + i + j % V * R); });
    for (int t = 0; t < n; ++t) {
        const int64_t at = static_cast<int64_t>(t) * size * Codec::kBytes;
        const uint8_t* value = values + at;
        prefetch(next + at + i * Codec::kBytes, V * R * Codec::kBytes);
        each<V>([&](auto v) RP_LAMBDA {
            const F x = Codec::load(value, i + v * R);
            each<H>([&](auto h) RP_LAMBDA {
                sum[h * V + v] = ffma(x, fset(weights[h * kTileKeys + t]), sum[h * V + v]);
            });
        });
    }
    each<H * V>([&](auto j) RP_LAMBDA { fstore(out + j / V * size + i + j % V * R, sum[j]); });
}

// out[h] += sum over n keys of weights[h][t] * value t.
template <class Codec, int H>
RP_INLINE void add_rows(const float* weights, int size, const uint8_t* values, const uint8_t* next,
                        int n, float* out) {
    constexpr int V = vectors_at_once(H);
    int i = 0;
    for (; i + V * R <= size; i += V * R)
        add_values<Codec, H, V>(weights, size, i, values, next, n, out);
    for (; i < size; i += R) add_values<Codec, H, 1>(weights, size, i, values, next, n, out);
}

// The same for P vectors of bytes from byte ``at`` of every token's values of 4 bits: P vectors of
// values in the low halves, P more half a group further in the high ones.
template <int H, int P>
RP_INLINE void add_nibbles(const float* weights, int stride, const uint8_t* values, int n,
                           const float* surplus, int size, float* out) {
    F sum[H * 2 * P];
    each<H * 2 * P>([&](auto j) RP_LAMBDA { sum[j] = fset(surplus[j / (2 * P)]); });
    for (int t = 0; t < n; ++t) {
        const uint8_t* value = values + static_cast<int64_t>(t) * stride;
        each<P>([&](auto v) RP_LAMBDA {
            const Nibbles x = fload_u4(value + v * R);
            each<H>([&](auto h) RP_LAMBDA {
                const F weight = fset(weights[h * kTileKeys + t]);
                sum[2 * (h * P + v)] = ffma(x.low, weight, sum[2 * (h * P + v)]);
                sum[2 * (h * P + v) + 1] = ffma(x.high, weight, sum[2 * (h * P + v) + 1]);
            });
        });
    }
    each<H * 2 * P>([&](auto j) RP_LAMBDA {
        float* p = out + j / (2 * P) * size + j / 2 % P * R + j % 2 * kNibbleGroup / 2;
        fstore(p, fadd(fload(p), sum[j]));
    });
}

// The weights of n tokens times the scales of one group of values; return -8 times their sums,
// because values of 4 bits are stored with 8 added.
template <int H>
RP_INLINE void fold_group_scales(const float* weights, int n, const uint8_t* scales, int stride,
                                 float* folded, float* surplus) {
    for (int h = 0; h < H; ++h) surplus[h] = 0.0f;
    for (int t = 0; t < n; ++t) {
        const float scale = load_f16(scales + 2 * t * stride);
        each<H>([&](auto h) RP_LAMBDA {
            const float weight = weights[h * kTileKeys + t] * scale;
            folded[h * kTileKeys + t] = weight;
            surplus[h] -= 8.0f * weight;
        });
    }
}

// The same for values of 4 bits, group by group.
template <int H>
RP_INLINE void add_nibble_rows(const float* weights, int size, const PackedRun& run,
                               const PackedRun& next, int n, float* out) {
    constexpr int P = R > 8 || H == 4 ? 1 : 2;
    const int groups = size / kNibbleGroup;
    float folded[H * kTileKeys], surplus[H];
    prefetch(next.values, n * size / 2);
    for (int g = 0; g < groups; ++g) {
        fold_group_scales<H>(weights, n, run.value_scales + 2 * g, groups, folded, surplus);
        for (int i = 0; i < kNibbleGroup / 2; i += P * R)
            add_nibbles<H, P>(folded, size / 2, run.values + g * kNibbleGroup / 2 + i, n, surplus,
                              size, out + g * kNibbleGroup + i);
    }
}

// Turn n scores into weights; return the factor for what was summed before.
RP_INLINE float soften(float* scores, int n, float cap, float* stats) {
    const int padded = (n + R - 1) / R * R;
    for (int t = n; t < padded; ++t) scores[t] = kMasked;
    F top = fset(stats[0]);
    for (int t = 0; t < padded; t += R) {
        F s = fload(scores + t);
        if (cap > 0.0f) s = fselect_gt(s, fset(0.5f * kMasked), cap_scores(s, cap), s);
        fstore(scores + t, s);
        top = fmaxv(top, s);
    }
    const float largest = fmaxh(top);
    F sum = fzero();
    for (int t = 0; t < padded; t += R) {
        const F p = fexp(fsub(fload(scores + t), fset(largest)));
        fstore(scores + t, p);
        sum = fadd(sum, p);
    }
    const float factor = largest == stats[0] ? 1.0f : std::exp(stats[0] - largest);
    stats[0] = largest;
    stats[1] = stats[1] * factor + fsum(sum);
    return factor;
}

RP_INLINE void scale_vector(float* x, int size, float factor) {
    if (factor == 1.0f) return;
    for (int i = 0; i < size; i += R) fstore(x + i, fmul(fload(x + i), fset(factor)));
}

template <int H>
RP_INLINE void soften_heads(const RpAttend& args, float* scores, int n, float* out, float* stats) {
    for (int h = 0; h < H; ++h) {
        const float factor = soften(scores + h * kTileKeys, n, args.soft_cap, stats + 2 * h);
        scale_vector(out + h * args.head_dim, args.head_dim, factor);
    }
}

// Multiply the numbers of every token by its scale; scales: float16.
template <int H>
RP_INLINE void fold_scales(float* numbers, int n, const uint8_t* scales) {
    int t = 0;
    for (; t + R <= n; t += R) {
        const F scale = fload_f16(scales + 2 * t);
        each<H>([&](auto h) RP_LAMBDA {
            float* p = numbers + h * kTileKeys + t;
            fstore(p, fmul(fload(p), scale));
        });
    }
    for (; t < n; ++t)
        for (int h = 0; h < H; ++h) numbers[h * kTileKeys + t] *= load_f16(scales + 2 * t);
}

// n keys inside one block, for H heads of one query row.
template <class Codec, int H>
static void attend_keys(const RpAttend& args, const float* q, const uint8_t* keys,
                        const uint8_t* next, int n, float* out, float* stats) {
    float scores[H * kTileKeys];
    const int64_t distance = value_distance(*args.slab);
    score_keys<Codec, H>(q, args.head_dim, keys, next, n, scores);
    soften_heads<H>(args, scores, n, out, stats);
    add_rows<Codec, H>(scores, args.head_dim, keys + distance, next + distance, n, out);
}

// The same for quantised ones: scales are folded into scores and weights.
template <int H>
static void attend_packed(const RpAttend& args, const float* q, const PackedRun& run,
                          const PackedRun& next, int n, float* out, float* stats) {
    float scores[H * kTileKeys];
    score_keys<CodecS8, H>(q, args.head_dim, run.keys, next.keys, n, scores);
    fold_scales<H>(scores, n, run.key_scales);
    soften_heads<H>(args, scores, n, out, stats);
    if (args.slab->packed->codec == RP_K8V4)
        return add_nibble_rows<H>(scores, args.head_dim, run, next, n, out);
    fold_scales<H>(scores, n, run.value_scales);
    add_rows<CodecS8, H>(scores, args.head_dim, run.values, next.values, n, out);
}

// Tokens from t on that lie in one block and fit a tile.
RP_INLINE int64_t run_length(const RpSlab& slab, int64_t t, int64_t last) {
    int64_t n = slab.block_size - t % slab.block_size;
    if (n > kTileKeys) n = kTileKeys;
    return n < last - t ? n : last - t;
}

template <class Codec, int H>
static void attend_heads(const RpAttend& args, const rp::Worker& worker, const rp::PlanItem& item,
                         int64_t row, int kv_head, int head) {
    const RpSlab& slab = *args.slab;
    const int size = args.head_dim;
    const Visible visible = visible_keys(slab, place_of(*worker.step, slab, row));
    float* out = partial_sums(args, worker, item.slot, row, head);
    float* stats = partial_stats(args, worker, item.slot, row, head);
    for (int i = 0; i < H * size; ++i) out[i] = 0.0f;
    for (int h = 0; h < H; ++h) {
        stats[2 * h] = kNothing;
        stats[2 * h + 1] = 0.0f;
    }
    const float* q = args.q + row * args.q_stride + head * size;
    int64_t t = visible.first > item.key_start ? visible.first : item.key_start;
    const int64_t last = visible.last < item.key_end ? visible.last : item.key_end;
    while (t < last) {
        const int64_t n = run_length(slab, t, last);
        const int64_t ahead = t + n < last ? t + n : t;
        const int count = static_cast<int>(n);
        if (is_packed(slab, item.is_packed, t)) {
            attend_packed<H>(args, q, packed_run(slab, item.blocks, t, kv_head, size),
                             packed_run(slab, item.blocks, ahead, kv_head, size), count, out,
                             stats);
        } else {
            const int row_size = size * Codec::kBytes;
            attend_keys<Codec, H>(args, q, key_row(slab, item.blocks, t, kv_head, row_size),
                                  key_row(slab, item.blocks, ahead, kv_head, row_size), count, out,
                                  stats);
        }
        t += n;
    }
}

template <class Codec>
static void attend_few(const RpAttend& args, const rp::Worker& worker, const rp::PlanItem& item,
                       int kv_head) {
    const int per_kv = args.num_heads / args.num_kv_heads;
    for (int64_t row = item.row_start; row < item.row_end; ++row) {
        for (int g = 0; g < per_kv;) {
            const int head = kv_head * per_kv + g;
            const int count = per_kv - g < 4 ? per_kv - g : 4;
            switch (count) {
                case 4: attend_heads<Codec, 4>(args, worker, item, row, kv_head, head); break;
                case 3: attend_heads<Codec, 3>(args, worker, item, row, kv_head, head); break;
                case 2: attend_heads<Codec, 2>(args, worker, item, row, kv_head, head); break;
                default: attend_heads<Codec, 1>(args, worker, item, row, kv_head, head); break;
            }
            g += count;
        }
    }
}

// ---- merge ----------------------------------------------------------------------------------

// Combine the partial results of one row and head; sinks join the weight and are dropped.
RP_INLINE void merge_head(const RpAttend& args, const rp::Worker& worker, int64_t row, int head,
                          int slots, float* out) {
    const int size = args.head_dim;
    float top = args.sinks ? args.sinks[head] : kNothing;
    for (int s = 0; s < slots; ++s) {
        const float m = partial_stats(args, worker, s, row, head)[0];
        top = m > top ? m : top;
    }
    float total = args.sinks ? std::exp(args.sinks[head] - top) : 0.0f;
    for (int i = 0; i < size; ++i) out[i] = 0.0f;
    for (int s = 0; s < slots; ++s) {
        const float* stats = partial_stats(args, worker, s, row, head);
        const float* sums = partial_sums(args, worker, s, row, head);
        const float factor = std::exp(stats[0] - top);
        total += stats[1] * factor;
        for (int i = 0; i < size; i += R)
            fstore(out + i, ffma(fload(sums + i), fset(factor), fload(out + i)));
    }
    scale_vector(out, size, 1.0f / total);
    if (args.slab->rotation & RP_ROTATED_VALUES) hadamard(out, size);
}

static void merge(const void* pointer, const rp::Worker& worker, int64_t row) {
    const RpAttend& args = *static_cast<const RpAttend*>(pointer);
    const int64_t width = static_cast<int64_t>(args.num_heads) * args.head_dim;
    const int slots = worker.plans[args.slab->group].row_slots[row];
    float* out = args.out ? args.out + row * width : reinterpret_cast<float*>(worker.scratch);
    for (int h = 0; h < args.num_heads; ++h)
        merge_head(args, worker, row, h, slots, out + h * args.head_dim);
    if (args.acts) quantize_row(out, *args.acts, row, is_reading(worker, worker.step->num_rows));
}

}  // namespace RP_NS
