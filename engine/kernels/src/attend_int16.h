// Queries, keys and values of a dense tile as int16, so that products of pairs add up to int32.
//
// No sum of products overflows, whatever the numbers are:
// - of a query and a key: by Cauchy and Schwarz it is at most the product of their norms;
// - of weights and values: at most the sum of the weights times the largest value.
// Every key and every value has a scale of its own, never one that depends on which other keys are
// at hand: a row's result must not depend on what else is in the batch.
#pragma once

namespace RP_NS {

// Norms of the int16 rows, less what rounding can add: 2^31 is more than their product.
constexpr float kQueryNorm = 65500.0f;
constexpr float kKeyNorm = 32740.0f;
constexpr float kLargestQuery = 32767.0f;
// Values of a key are times 2^14 and divided by the power of two above the largest.
constexpr int kValueBits = 14;
constexpr float kWeightSum = 131000.0f;  // 2^31 is more than this and rounding, times 2^14
constexpr float kLargestWeight = 32767.0f;
constexpr int kLeastValueExponent = -40, kLargestValueExponent = 100;
constexpr float kLeastNorm = 1e-15f;  // below it squares lose their precision: taken for 0
constexpr float kLog2E = 1.44269504f;

// A row times up; which numbers are a pair does not matter, if it is the same for all rows.
RP_INLINE void quantize_numbers(const float* x, int n, float up, int16_t* out) {
    const F scale = fset(up);
    int i = 0;
    for (; i + 2 * R <= n; i += 2 * R)
        hstore(out + i, fmul(fload(x + i), scale), fmul(fload(x + i + R), scale));
    if (i < n) fstore_swapped(out + i, fmul(fload(x + i), scale));
}

// out: one pair every stride int16. Return what the int16 must be multiplied with, NaN where q is
// not finite. row: n int16.
RP_INLINE float quantize_query(const float* q, int n, int16_t* row, int16_t* out, int stride) {
    const float norm = std::sqrt(sum_of_squares(q, n)), largest = largest_of(q, n);
    const float by_norm = kQueryNorm / norm, by_largest = kLargestQuery / largest;
    const float up = norm < kLeastNorm ? 0.0f : by_norm < by_largest ? by_norm : by_largest;
    quantize_numbers(q, n, up, row);
    for (int i = 0; i < n / 2; ++i) std::memcpy(out + i * stride, row + 2 * i, 2 * sizeof *row);
    return (up > 0.0f ? 1.0f / up : 0.0f) + 0.0f * norm;
}

// The least power of two above x, as exponent.
RP_INLINE int exponent_above(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const int e = static_cast<int>(bits >> 23) - 126;
    return e < kLeastValueExponent ? kLeastValueExponent
                                   : e > kLargestValueExponent ? kLargestValueExponent : e;
}

RP_INLINE float power_of_two(int e) {
    const uint32_t bits = static_cast<uint32_t>(e + 127) << 23;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
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

using rp::kDenseKeys;

// A token's key and value on their way to int16, and what they are multiplied with.
struct TokenRow {
    float* key;    // (D)
    float* value;  // (D)
    float key_up, value_up;
};

// Keys and values of a tile, padded to a multiple of four.
struct TileKeys {
    int size;              // D
    int16_t* keys;         // (kDenseKeys, D)
    int16_t* values;       // (kDenseKeys / 2, D, 2)
    float* key_scale;      // (kDenseKeys)
    float* value_log;      // (kDenseKeys): values are times 2 to the power of this
    float* value_inverse;  // (kDenseKeys): 2 to the power of minus that
    TokenRow row[4];       // of token i: i % 4
};

// Tokens i and i + 1 of the tile.
RP_INLINE void quantize_pair(const TileKeys& t, int i) {
    const TokenRow &even = t.row[i % 4], &odd = t.row[i % 4 + 1];
    quantize_numbers(even.key, t.size, even.key_up, t.keys + i * t.size);
    quantize_numbers(odd.key, t.size, odd.key_up, t.keys + (i + 1) * t.size);
    const F up0 = fset(even.value_up), up1 = fset(odd.value_up);
    for (int d = 0; d < t.size; d += R)
        hstore(t.values + i * t.size + 2 * d, fmul(fload(even.value + d), up0),
               fmul(fload(odd.value + d), up1));
}

// Token i, whose row holds its key and value; squares: of the key's numbers. Pairs are quantised
// when the next pair is at hand: nothing has to wait for a square root then.
RP_INLINE void add_token(TileKeys& t, int i, float squares, float largest_value) {
    TokenRow& row = t.row[i % 4];
    const float norm = std::sqrt(squares);
    row.key_up = norm < kLeastNorm ? 0.0f : kKeyNorm / norm;
    t.key_scale[i] = norm * (1.0f / kKeyNorm);
    const int e = exponent_above(largest_value);
    row.value_up = power_of_two(kValueBits - e);
    t.value_log[i] = static_cast<float>(e);
    // What is not finite must be seen in the result: 0 times it is NaN.
    t.value_inverse[i] = power_of_two(-e) + 0.0f * (largest_value + norm);
    if (i % 2 == 1 && i > 1) quantize_pair(t, i - 3);
}

// Tokens i..i+n-1 of the tile, which lie in one block; next: where those of the next block lie.
static void convert_packed(TileKeys& t, const PackedRun& run, const PackedRun& next,
                           bool has_nibbles, int i, int n) {
    const int64_t size = t.size, groups = size / kNibbleGroup;
    const int64_t width = has_nibbles ? size / 2 : size;
    for (int j = 0; j < n; ++j) {
        const TokenRow& row = t.row[(i + j) % 4];
        prefetch(next.keys + j * size, size);
        prefetch(next.values + j * width, width);
        convert_scaled(run.keys + j * size, t.size, load_f16(run.key_scales + 2 * j), row.key);
        const uint8_t* values = run.values + j * width;
        if (has_nibbles)
            convert_nibbles(values, t.size, run.value_scales + 2 * j * groups, row.value);
        else
            convert_scaled(values, t.size, load_f16(run.value_scales + 2 * j), row.value);
        add_token(t, i + j, sum_of_squares(row.key, t.size), largest_of(row.value, t.size));
    }
}

template <class Codec>
static void convert_exact(TileKeys& t, const uint8_t* keys, const uint8_t* next, int64_t distance,
                          int i, int n) {
    const int64_t bytes = static_cast<int64_t>(t.size) * Codec::kBytes;
    for (int j = 0; j < n; ++j, keys += bytes, next += bytes) {
        const TokenRow& row = t.row[(i + j) % 4];
        F squares = fzero(), largest = fzero();
        prefetch(next, bytes);
        prefetch(next + distance, bytes);
        for (int d = 0; d < t.size; d += R) {
            const F key = Codec::load(keys, d), value = Codec::load(keys + distance, d);
            fstore(row.key + d, key);
            fstore(row.value + d, value);
            squares = ffma(key, key, squares);
            largest = fmaxv(largest, fabsv(value));
        }
        add_token(t, i + j, fsum(squares), fmaxh(largest));
    }
}

// next: the first token of the run after this one.
static void convert_run(TileKeys& t, const RpSlab& slab, const rp::PlanItem& item, int kv_head,
                        int64_t token, int64_t next, int i, int n) {
    if (is_packed(slab, item.is_packed, next) != is_packed(slab, item.is_packed, token))
        next = token;
    if (is_packed(slab, item.is_packed, token))
        return convert_packed(t, packed_run(slab, item.blocks, token, kv_head, t.size),
                              packed_run(slab, item.blocks, next, kv_head, t.size),
                              slab.packed->codec == RP_K8V4, i, n);
    const int bytes = t.size * (slab.codec == RP_F32 ? 4 : 2);
    const uint8_t* keys = key_row(slab, item.blocks, token, kv_head, bytes);
    const uint8_t* ahead = key_row(slab, item.blocks, next, kv_head, bytes);
    const int64_t distance = value_distance(slab);
    switch (slab.codec) {
        case RP_F16: return convert_exact<CodecF16>(t, keys, ahead, distance, i, n);
        case RP_BF16: return convert_exact<CodecBF16>(t, keys, ahead, distance, i, n);
        default: return convert_exact<CodecF32>(t, keys, ahead, distance, i, n);
    }
}

// Keys that nobody sees, up to the next multiple of four; then the last pair.
static void pad_keys(TileKeys& t, int n) {
    for (; n % 4 != 0; ++n) {
        std::memset(t.row[n % 4].key, 0, sizeof(float) * static_cast<size_t>(t.size));
        std::memset(t.row[n % 4].value, 0, sizeof(float) * static_cast<size_t>(t.size));
        add_token(t, n, 0.0f, 0.0f);
        t.value_log[n] = kMasked;
        t.value_inverse[n] = 0.0f;
    }
    quantize_pair(t, n - 2);
}

static void convert_keys(TileKeys& t, const RpSlab& slab, const rp::PlanItem& item, int kv_head,
                         int64_t first, int n) {
    for (int i = 0; i < n;) {
        const int left = slab.block_size - static_cast<int>((first + i) % slab.block_size);
        const int run = left < n - i ? left : n - i;
        const int64_t next = first + i + run < item.key_end ? first + i + run : first;
        convert_run(t, slab, item, kv_head, first + i, next, i, run);
        i += run;
    }
    pad_keys(t, n);
}

}  // namespace RP_NS
