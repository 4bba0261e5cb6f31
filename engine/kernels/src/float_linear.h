// Products of float matrices, as they lie in the file, with float activations.
// The order of the float operations does not depend on the number of rows or threads.
#pragma once

namespace RP_NS {

// Matrix rows of one tile, and activation rows that share a pass over some of them.
constexpr int kFloatTile = 8;
constexpr int kFloatBlock = 3;

template <class Number>
RP_INLINE float load_one(const uint8_t* row, int64_t i) {
    if constexpr (std::is_same_v<Number, CodecF16>) return load_f16(row + 2 * i);
    if constexpr (std::is_same_v<Number, CodecBF16>) return load_bf16(row + 2 * i);
    return load_f32(row + 4 * i);
}

// Weights w and activations x, N and M rows of `width` numbers.
template <class Number>
struct FloatRows {
    const uint8_t* w;
    const float* x;
    int64_t w_stride;  // bytes
    int64_t x_stride;
    int64_t width;
};

// total[n * M + m] = row n of w times row m of x.
template <class Number, int N, int M>
RP_INLINE void multiply_floats(const FloatRows<Number>& rows, float (&total)[N * M]) {
    F sum[N * M];
    each<N * M>([&](auto i) RP_LAMBDA { sum[i] = fzero(); });
    const int64_t whole = rows.width / R * R;
    for (int64_t k = 0; k < whole; k += R) {
        F x[M];
        each<M>([&](auto m) RP_LAMBDA { x[m] = fload(rows.x + m * rows.x_stride + k); });
        each<N>([&](auto n) RP_LAMBDA {
            const F w = Number::load(rows.w + n * rows.w_stride, static_cast<int>(k));
            each<M>([&](auto m) RP_LAMBDA { sum[n * M + m] = ffma(w, x[m], sum[n * M + m]); });
        });
    }
    each<N * M>([&](auto i) RP_LAMBDA { total[i] = fsum(sum[i]); });
    for (int64_t k = whole; k < rows.width; ++k)
        for (int i = 0; i < N * M; ++i)
            total[i] += load_one<Number>(rows.w + i / M * rows.w_stride, k) *
                        rows.x[i % M * rows.x_stride + k];
}

RP_INLINE void store_product(const RpMatrix& matrix, int64_t row, int64_t column, float y) {
    float* out = matrix.out + row * matrix.out_stride + column;
    if (matrix.bias) y += matrix.bias[column];
    *out = matrix.is_added ? *out + y : y;
}

template <class Number, int N, int M>
static void multiply_part(const RpFloatLinear& args, const RpMatrix& matrix, int64_t column,
                          int64_t first) {
    const int64_t stride = static_cast<int64_t>(args.width) * Number::kBytes;
    const FloatRows<Number> rows{matrix.data + column * stride, args.x + first * args.x_stride,
                                 stride, args.x_stride, args.width};
    float total[N * M];
    multiply_floats<Number, N, M>(rows, total);
    for (int i = 0; i < N * M; ++i)
        store_product(matrix, first + i % M, column + i / M, total[i]);
}

template <class Number>
static void multiply_float_tile(const RpFloatLinear& args, const RpMatrix& matrix, int64_t tile,
                                int64_t rows) {
    int64_t column = tile * kFloatTile;
    const int64_t end = column + kFloatTile < matrix.num_rows ? column + kFloatTile
                                                              : matrix.num_rows;
    int64_t first = 0;
    for (; first + kFloatBlock <= rows; first += kFloatBlock) {
        int64_t at = column;
        for (; at + 4 <= end; at += 4)
            multiply_part<Number, 4, kFloatBlock>(args, matrix, at, first);
        for (; at < end; ++at) multiply_part<Number, 1, kFloatBlock>(args, matrix, at, first);
    }
    for (; first < rows; ++first) {
        int64_t at = column;
        for (; at + kFloatTile <= end; at += kFloatTile)
            multiply_part<Number, kFloatTile, 1>(args, matrix, at, first);
        for (; at < end; ++at) multiply_part<Number, 1, 1>(args, matrix, at, first);
    }
}

RP_INLINE int64_t float_tiles(const RpMatrix& matrix) {
    return (matrix.num_rows + kFloatTile - 1) / kFloatTile;
}

static int64_t count_float_linear(const void* pointer, const rp::Worker& worker) {
    const RpFloatLinear& args = *static_cast<const RpFloatLinear*>(pointer);
    const RpStep& step = *worker.step;
    if ((args.is_logit_rows ? step.num_logit_rows : step.num_rows) == 0) return 0;
    int64_t total = 0;
    for (int32_t i = 0; i < args.num_matrices; ++i) total += float_tiles(args.matrices[i]);
    return total;
}

static void float_linear(const void* pointer, const rp::Worker& worker, int64_t piece) {
    const RpFloatLinear& args = *static_cast<const RpFloatLinear*>(pointer);
    const RpMatrix* matrix = args.matrices;
    for (; piece >= float_tiles(*matrix); ++matrix) piece -= float_tiles(*matrix);
    const RpStep& step = *worker.step;
    const int64_t rows = args.is_logit_rows ? step.num_logit_rows : step.num_rows;
    switch (matrix->kind) {
        case RP_F16: return multiply_float_tile<CodecF16>(args, *matrix, piece, rows);
        case RP_BF16: return multiply_float_tile<CodecBF16>(args, *matrix, piece, rows);
        default: return multiply_float_tile<CodecF32>(args, *matrix, piece, rows);
    }
}

}  // namespace RP_NS
