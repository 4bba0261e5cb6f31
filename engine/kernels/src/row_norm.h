// Norms beyond the plain one, and queries that grow with their position.
#pragma once

namespace RP_NS {

// Sum of (x - mean)^2.
RP_INLINE float centered_squares(const float* x, int n, float mean) {
    F sum = fzero();
    for (int i = 0; i < n; i += R) {
        const F v = fsub(fload(x + i), fset(mean));
        sum = ffma(v, v, sum);
    }
    return fsum(sum);
}

RP_INLINE float mean_of(const float* x, int n) {
    F sum = fzero();
    for (int i = 0; i < n; i += R) sum = fadd(sum, fload(x + i));
    return fsum(sum) / static_cast<float>(n);
}

static int64_t count_row_norm(const void* pointer, const rp::Worker& worker) {
    const RpRowNorm& args = *static_cast<const RpRowNorm*>(pointer);
    return args.is_logit_rows ? worker.step->num_logit_rows : worker.step->num_rows;
}

// args.width is a multiple of R, and of 32 when quantised.
static void row_norm(const void* pointer, const rp::Worker& worker, int64_t row) {
    const RpRowNorm& args = *static_cast<const RpRowNorm*>(pointer);
    const int64_t source = args.is_logit_rows ? worker.step->logit_rows[row] : row;
    const float* x = args.x + source * args.x_stride;
    float* out =
        args.out ? args.out + row * args.out_stride : reinterpret_cast<float*>(worker.scratch);
    const float mean = args.is_centered ? mean_of(x, args.width) : 0.0f;
    const float square = centered_squares(x, args.width, mean) / static_cast<float>(args.width);
    const F factor = fset(1.0f / std::sqrt(square + args.eps));
    for (int i = 0; i < args.width; i += R) {
        const F y = fmul(fmul(fsub(fload(x + i), fset(mean)), factor), fload(args.weight + i));
        fstore(out + i, args.bias ? fadd(y, fload(args.bias + i)) : y);
    }
    if (args.acts)
        quantize_row(out, *args.acts, row, is_reading(worker, count_row_norm(pointer, worker)));
}

static void grow(const void* pointer, const rp::Worker& worker, int64_t row) {
    const RpGrow& args = *static_cast<const RpGrow*>(pointer);
    const int periods = worker.step->positions[row] / args.period;
    if (periods == 0) return;
    const F factor = fset(static_cast<float>(1.0 + args.growth * std::log1p(periods)));
    float* x = args.x + row * args.stride;
    for (int i = 0; i < args.width; i += R) fstore(x + i, fmul(fload(x + i), factor));
}

}  // namespace RP_NS
