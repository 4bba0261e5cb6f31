// NEON with the dot product instructions: four float lanes, vectors of 4 rows x 4 columns.
#pragma once
#include <arm_neon.h>

#include <cstring>

namespace RP_NS {

using F = float32x4_t;
using I = int32x4_t;
using W = uint8x16_t;
constexpr int R = 4;

RP_INLINE F fset(float x) { return vdupq_n_f32(x); }
RP_INLINE F fzero() { return vdupq_n_f32(0.0f); }
RP_INLINE F fload(const float* p) { return vld1q_f32(p); }
RP_INLINE void fstore(float* p, F v) { vst1q_f32(p, v); }
RP_INLINE F fadd(F a, F b) { return vaddq_f32(a, b); }
RP_INLINE F fsub(F a, F b) { return vsubq_f32(a, b); }
RP_INLINE F fmul(F a, F b) { return vmulq_f32(a, b); }
RP_INLINE F fdiv(F a, F b) { return vdivq_f32(a, b); }
RP_INLINE F ffma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
RP_INLINE F fmaxv(F a, F b) { return vmaxq_f32(a, b); }
RP_INLINE F fminv(F a, F b) { return vminq_f32(a, b); }
RP_INLINE F fabsv(F a) { return vabsq_f32(a); }
RP_INLINE F fround(F a) { return vrndnq_f32(a); }
RP_INLINE F fcvt(I a) { return vcvtq_f32_s32(a); }

// a > b ? x : y
RP_INLINE F fselect_gt(F a, F b, F x, F y) { return vbslq_f32(vcgtq_f32(a, b), x, y); }

// 2^n of whole numbers n in -126..127
RP_INLINE F fpow2(F n) {
    const int32x4_t e = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(e, 23));
}

// y in 1/2..2 times 2 to the power n, where t is n + kRounder and n in -127..127; 0 for 1 * 2^-127.
RP_INLINE F fshift(F y, F t) {
    const int32x4_t n = vshlq_n_s32(vreinterpretq_s32_f32(t), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(y), n));
}

RP_INLINE float fsum(F v) { return vaddvq_f32(v); }
RP_INLINE float fmaxh(F v) { return vmaxvq_f32(v); }

// out[j] = the sum of v[j], for four vectors.
RP_INLINE void fsum4(float* out, const F* v) {
    vst1q_f32(out, vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3])));
}

RP_INLINE F fload_f16(const uint8_t* p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

RP_INLINE void fstore_f16(uint8_t* p, F v) {
    vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32(v)));
}

RP_INLINE F fload_bf16(const uint8_t* p) {
    const uint16x4_t h = vreinterpret_u16_u8(vld1_u8(p));
    return vreinterpretq_f32_u32(vshll_n_u16(h, 16));
}

RP_INLINE F fload_s8(const uint8_t* p) {
    uint32_t bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    const int16x8_t wide = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(bytes)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}

// Whole numbers from -128 to 127 to R bytes.
RP_INLINE void fstore_s8(uint8_t* p, F v) {
    const int16x4_t h = vmovn_s32(vcvtnq_s32_f32(v));
    const int8x8_t b = vmovn_s16(vcombine_s16(h, h));
    const uint32_t bytes = vget_lane_u32(vreinterpret_u32_s8(b), 0);
    std::memcpy(p, &bytes, sizeof bytes);
}

// R bytes as the whole numbers of their low and high halves.
struct Nibbles {
    F low, high;
};

RP_INLINE Nibbles fload_u4(const uint8_t* p) {
    uint32_t bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    const uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes)));
    const uint32x4_t b = vmovl_u16(vget_low_u16(wide));
    return {vcvtq_f32_u32(vandq_u32(b, vdupq_n_u32(15))), vcvtq_f32_u32(vshrq_n_u32(b, 4))};
}

// Whole numbers to R int16, the middle two swapped.
RP_INLINE void fstore_swapped(int16_t* p, F v) {
    const int16x4_t h = vmovn_s32(vcvtnq_s32_f32(v));
    const int32x2_t even = vreinterpret_s32_s16(vuzp1_s16(h, h));
    const int32x2_t odd = vreinterpret_s32_s16(vuzp2_s16(h, h));
    vst1_s16(p, vreinterpret_s16_s32(vzip1_s32(even, odd)));
}

// R pairs of int16, and sums of the products of pairs.
using H = int16x8_t;
struct S {
    int32x4_t low, high;
};
RP_INLINE H hload(const int16_t* p) { return vld1q_s16(p); }

// One pair for all lanes.
RP_INLINE H hset(const int16_t* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return vreinterpretq_s16_s32(vdupq_n_s32(pair));
}

// Whole numbers in the range of int16 to R pairs.
RP_INLINE void hstore(int16_t* p, F first, F second) {
    const int16x8_t low = vreinterpretq_s16_s32(vcvtnq_s32_f32(first));
    const int16x8_t high = vreinterpretq_s16_s32(vcvtnq_s32_f32(second));
    vst1q_s16(p, vtrn1q_s16(low, high));
}

RP_INLINE void hstore(int16_t* p, H v) { vst1q_s16(p, v); }
RP_INLINE H hadd(H a, H b) { return vaddq_s16(a, b); }

// a * 2^N * b / 2^15, rounded.
template <int N>
RP_INLINE H hscale(H a, H b) {
    return vqrdmulhq_s16(vshlq_n_s16(a, N), b);
}

RP_INLINE S szero() { return {vdupq_n_s32(0), vdupq_n_s32(0)}; }
RP_INLINE S sdot(S sum, H a, H b) {
    return {vmlal_s16(sum.low, vget_low_s16(a), vget_low_s16(b)), vmlal_high_s16(sum.high, a, b)};
}
RP_INLINE I stotal(S sum) { return vpaddq_s32(sum.low, sum.high); }

RP_INLINE W wload(const uint8_t* p) { return vld1q_u8(p); }
RP_INLINE void wstore(uint8_t* p, W w) { vst1q_u8(p, w); }
RP_INLINE W wor(W a, W b) { return vorrq_u8(a, b); }
RP_INLINE W wlow(W w) { return vandq_u8(w, vdupq_n_u8(0x0f)); }
RP_INLINE W whigh(W w) { return vshrq_n_u8(w, 4); }

// Bits SHIFT.. of every byte, moved to bit 4 and masked.
template <int SHIFT>
RP_INLINE W wplane(W w, char mask) {
    const uint8x16_t bits = vdupq_n_u8(static_cast<uint8_t>(mask));
    if constexpr (SHIFT < 4)
        return vandq_u8(vshlq_n_u8(w, 4 - SHIFT), bits);
    else if constexpr (SHIFT == 4)
        return vandq_u8(w, bits);
    else
        return vandq_u8(vshrq_n_u8(w, SHIFT - 4), bits);
}

// A weight vector as two of 16 bits: columns 0 and 2, columns 1 and 3 of every row.
struct Pair {
    int16x8_t even, odd;
};

template <bool SIGNED>
RP_INLINE Pair widen(W w) {
    if constexpr (SIGNED) {
        const int16x8_t both = vreinterpretq_s16_u8(w);
        return {vshrq_n_s16(vshlq_n_s16(both, 8), 8), vshrq_n_s16(both, 8)};
    } else {
        const uint16x8_t both = vreinterpretq_u16_u8(w);
        return {vreinterpretq_s16_u16(vandq_u16(both, vdupq_n_u16(0xff))),
                vreinterpretq_s16_u16(vshrq_n_u16(both, 8))};
    }
}

template <int X>
RP_INLINE Pair minus(Pair w) {
    const int16x8_t x = vdupq_n_s16(X);
    return {vsubq_s16(w.even, x), vsubq_s16(w.odd, x)};
}

RP_INLINE Pair load_pair(const uint8_t* p) {
    return {vreinterpretq_s16_u8(wload(p)), vreinterpretq_s16_u8(wload(p + sizeof(W)))};
}

RP_INLINE void store_pair(uint8_t* p, Pair w) {
    wstore(p, vreinterpretq_u8_s16(w.even));
    wstore(p + sizeof(W), vreinterpretq_u8_s16(w.odd));
}

// Four activations for every row: columns 0 and 2, columns 1 and 3.
RP_INLINE Pair broadcast_pair(const int16_t* p) {
    int32_t even, odd;
    std::memcpy(&even, p, sizeof even);
    std::memcpy(&odd, p + 2, sizeof odd);
    return {vreinterpretq_s16_s32(vdupq_n_s32(even)), vreinterpretq_s16_s32(vdupq_n_s32(odd))};
}

RP_INLINE I iset(int32_t x) { return vdupq_n_s32(x); }

RP_INLINE I dot_half(I sum, int16x8_t w, int16x8_t a) {
    const int32x4_t low = vmull_s16(vget_low_s16(w), vget_low_s16(a));
    return vaddq_s32(sum, vpaddq_s32(low, vmull_high_s16(w, a)));
}

RP_INLINE I dot(I sum, Pair w, Pair a) {
    return dot_half(dot_half(sum, w.even, a.even), w.odd, a.odd);
}

// Sums of products of up to 32 columns: of nibbles, and of bytes, four of them for every row.
using B = int32x4_t;
RP_INLINE B bzero() { return vdupq_n_s32(0); }
RP_INLINE B bdot(B sum, W nibbles, const int8_t* bytes) {
    int32_t four;
    std::memcpy(&four, bytes, sizeof four);
    return vdotq_s32(sum, vreinterpretq_s8_u8(nibbles), vreinterpretq_s8_s32(vdupq_n_s32(four)));
}
RP_INLINE I btotal(B sum) { return sum; }

}  // namespace RP_NS
