// Cosines of a step; norm, rotation and scaling of q and k; keys and values into their blocks.
#pragma once

namespace RP_NS {

static void trig(const void* pointer, const rp::Worker& worker, int64_t row) {
    const RpTrig& args = *static_cast<const RpTrig*>(pointer);
    const int pairs = args.num_pairs;
    float* out = args.cos_sin + row * 2 * pairs;
    const double position = worker.step->positions[row];
    for (int i = 0; i < pairs; ++i) {
        // Double: at position 100,000 a float angle is off by a hundredth.
        const double angle = position * args.frequencies[i];
        out[i] = static_cast<float>(std::cos(angle)) * args.magnitude;
        out[pairs + i] = static_cast<float>(std::sin(angle)) * args.magnitude;
    }
}

// Pairs (i, i + pairs).
RP_INLINE void rotate_neox(float* x, const float* cos, const float* sin, int pairs) {
    int i = 0;
    for (; i + R <= pairs; i += R) {
        const F a = fload(x + i), b = fload(x + pairs + i), c = fload(cos + i), s = fload(sin + i);
        fstore(x + i, fsub(fmul(a, c), fmul(b, s)));
        fstore(x + pairs + i, ffma(a, s, fmul(b, c)));
    }
    for (; i < pairs; ++i) {
        const float a = x[i], b = x[pairs + i];
        x[i] = a * cos[i] - b * sin[i];
        x[pairs + i] = a * sin[i] + b * cos[i];
    }
}

// Pairs (2 i, 2 i + 1).
RP_INLINE void rotate_interleaved(float* x, const float* cos, const float* sin, int pairs) {
    for (int i = 0; i < pairs; ++i) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cos[i] - b * sin[i];
        x[2 * i + 1] = a * sin[i] + b * cos[i];
    }
}

RP_INLINE void prepare_head(const RpRope& args, float* x, const float* weight, int64_t row,
                            float scale) {
    const int size = args.head_dim;
    if (weight) {
        const float mean = sum_of_squares(x, size) / static_cast<float>(size);
        const float factor = 1.0f / std::sqrt(mean + args.eps);
        for (int i = 0; i < size; i += R)
            fstore(x + i, fmul(fload(x + i), fmul(fset(factor), fload(weight + i))));
    }
    const float* cos = args.cos_sin + row * 2 * args.num_pairs;
    if (args.is_neox)
        rotate_neox(x, cos, cos + args.num_pairs, args.num_pairs);
    else
        rotate_interleaved(x, cos, cos + args.num_pairs, args.num_pairs);
    if (args.slab->rotation & RP_ROTATED_KEYS) hadamard(x, size);
    if (scale == 1.0f) return;
    for (int i = 0; i < size; i += R) fstore(x + i, fmul(fload(x + i), fset(scale)));
}

// The values of a row and head as they are stored.
RP_INLINE const float* stored_values(const RpRope& args, const float* v, uint8_t* scratch) {
    if (!(args.slab->rotation & RP_ROTATED_VALUES)) return v;
    float* rotated = reinterpret_cast<float*>(scratch);
    std::memcpy(rotated, v, sizeof(float) * static_cast<size_t>(args.head_dim));
    hadamard(rotated, args.head_dim);
    return rotated;
}

template <class Codec>
RP_INLINE void write_row(uint8_t* row, const float* x, int size) {
    for (int i = 0; i < size; i += R) Codec::store(row, i, fload(x + i));
}

template <class Codec>
static void rope_row(const RpRope& args, const RpSlice& slice, int64_t row, uint8_t* scratch) {
    const int64_t token = slice.first_place + row - slice.start;
    for (int h = 0; h < args.num_heads; ++h) {
        float* q = args.q + row * args.q_stride + h * args.head_dim;
        prepare_head(args, q, args.q_norm, row, args.q_scale);
    }
    for (int h = 0; h < args.num_kv_heads; ++h) {
        float* k = args.k + row * args.k_stride + h * args.head_dim;
        prepare_head(args, k, args.k_norm, row, 1.0f);
        const float* v =
            stored_values(args, args.v + row * args.v_stride + h * args.head_dim, scratch);
        uint8_t* key =
            key_row(*args.slab, slice.blocks, token, h, args.head_dim * Codec::kBytes);
        write_row<Codec>(key, k, args.head_dim);
        write_row<Codec>(key + value_distance(*args.slab), v, args.head_dim);
    }
}

static void rope(const void* pointer, const rp::Worker& worker, int64_t row) {
    const RpRope& args = *static_cast<const RpRope*>(pointer);
    const RpSlice& slice = slice_of(*worker.step, args.slab->group, row);
    switch (args.slab->codec) {
        case RP_F16: return rope_row<CodecF16>(args, slice, row, worker.scratch);
        case RP_BF16: return rope_row<CodecBF16>(args, slice, row, worker.scratch);
        default: return rope_row<CodecF32>(args, slice, row, worker.scratch);
    }
}

}  // namespace RP_NS
