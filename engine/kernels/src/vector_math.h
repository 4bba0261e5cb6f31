// Vector functions built from the primitives of an instruction set.
#pragma once

namespace RP_NS {

template <class Fn, int... I>
RP_INLINE void each_of(Fn fn, std::integer_sequence<int, I...>) {
    (fn(std::integral_constant<int, I>()), ...);
}

// fn(0), fn(1), ... fn(N - 1) with constant arguments. Loops over accumulators are written this
// way because arrays indexed by a loop variable stay in memory.
template <int N, class Fn>
RP_INLINE void each(Fn fn) {
    each_of(fn, std::make_integer_sequence<int, N>());
}

// Ask for bytes before they are needed; harmless beyond the end of an array.
RP_INLINE void prefetch(const uint8_t* p, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) RP_PREFETCH(p + i);
}

// The same for bytes that are read once per step: they do not push others out of the cache.
RP_INLINE void prefetch_once(const uint8_t* p, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) RP_PREFETCH_ONCE(p + i);
}

// e^x to about 2 ulp; 0 below -87. Source: Cephes expf.
RP_INLINE F fexp(F x) {
    const F clamped = fminv(fmaxv(x, fset(-87.0f)), fset(88.0f));
    const F n = fround(fmul(clamped, fset(1.44269504f)));
    F r = ffma(n, fset(-0.693359375f), clamped);
    r = ffma(n, fset(2.12194440e-4f), r);
    F y = fset(1.9875691500e-4f);
    y = ffma(y, r, fset(1.3981999507e-3f));
    y = ffma(y, r, fset(8.3334519073e-3f));
    y = ffma(y, r, fset(4.1665795894e-2f));
    y = ffma(y, r, fset(1.6666665459e-1f));
    y = ffma(y, r, fset(5.0000001201e-1f));
    y = ffma(fmul(r, r), y, fadd(r, fset(1.0f)));
    return fselect_gt(x, fset(-87.0f), fmul(y, fpow2(n)), fzero());
}

constexpr float kRounder = 12582912.0f;  // added to a number it leaves no room for a fraction

// 2^x for x <= 0 to 3e-6 of it; exactly 1 for 0 and exactly 0 below -127.
RP_INLINE F fexp2(F x) {
    x = fmaxv(x, fset(-127.0f));
    const F t = fadd(x, fset(kRounder));
    const F r = fsub(x, fsub(t, fset(kRounder)));
    F y = fset(9.582853121e-3f);
    y = ffma(y, r, fset(5.590642482e-2f));
    y = ffma(y, r, fset(2.402409861e-1f));
    y = ffma(y, r, fset(6.931241934e-1f));
    return fshift(ffma(y, r, fset(1.0f)), t);
}

RP_INLINE F fsigmoid(F x) { return fdiv(fset(1.0f), fadd(fset(1.0f), fexp(fsub(fzero(), x)))); }

RP_INLINE F ftanh(F x) {
    return fsub(fmul(fset(2.0f), fsigmoid(fmul(fset(2.0f), x))), fset(1.0f));
}

RP_INLINE float sum_of_squares(const float* x, int n) {
    F a = fzero(), b = fzero();
    int i = 0;
    for (; i + 2 * R <= n; i += 2 * R) {
        const F u = fload(x + i), v = fload(x + i + R);
        a = ffma(u, u, a);
        b = ffma(v, v, b);
    }
    float s = fsum(fadd(a, b));
    for (; i < n; ++i) s += x[i] * x[i];
    return s;
}

}  // namespace RP_NS
