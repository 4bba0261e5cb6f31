// AVX-512 with VNNI: sixteen float lanes, 64-byte weight vectors of 16 rows x 4 columns.
#pragma once
#include <immintrin.h>

#include <cstring>

namespace RP_NS {

using F = __m512;
using I = __m512i;
using W = __m512i;
constexpr int R = 16;

RP_INLINE F fset(float x) { return _mm512_set1_ps(x); }
RP_INLINE F fzero() { return _mm512_setzero_ps(); }
RP_INLINE F fload(const float* p) { return _mm512_loadu_ps(p); }
RP_INLINE void fstore(float* p, F v) { _mm512_storeu_ps(p, v); }
RP_INLINE F fadd(F a, F b) { return _mm512_add_ps(a, b); }
RP_INLINE F fsub(F a, F b) { return _mm512_sub_ps(a, b); }
RP_INLINE F fmul(F a, F b) { return _mm512_mul_ps(a, b); }
RP_INLINE F fdiv(F a, F b) { return _mm512_div_ps(a, b); }
RP_INLINE F ffma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
RP_INLINE F fmaxv(F a, F b) { return _mm512_max_ps(a, b); }
RP_INLINE F fminv(F a, F b) { return _mm512_min_ps(a, b); }
RP_INLINE F fabsv(F a) { return _mm512_abs_ps(a); }
RP_INLINE F fround(F a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
RP_INLINE F fcvt(I a) { return _mm512_cvtepi32_ps(a); }

// a > b ? x : y
RP_INLINE F fselect_gt(F a, F b, F x, F y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x);
}

// 2^n of whole numbers n in -126..127
RP_INLINE F fpow2(F n) {
    const __m512i e = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(e, 23));
}

// y in 1/2..2 times 2 to the power n, where t is n + kRounder and n in -127..127; 0 for 1 * 2^-127.
RP_INLINE F fshift(F y, F t) {
    const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(y), n));
}

RP_INLINE float fsum(F v) { return _mm512_reduce_add_ps(v); }
RP_INLINE float fmaxh(F v) { return _mm512_reduce_max_ps(v); }

// out[j] = the sum of v[j], for four vectors.
RP_INLINE void fsum4(float* out, const F* v) {
    for (int j = 0; j < 4; ++j) out[j] = fsum(v[j]);
}

RP_INLINE F fload_f16(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

RP_INLINE void fstore_f16(uint8_t* p, F v) {
    const __m256i h = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), h);
}

RP_INLINE F fload_bf16(const uint8_t* p) {
    const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

RP_INLINE F fload_s8(const uint8_t* p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

// Whole numbers from -128 to 127 to R bytes.
RP_INLINE void fstore_s8(uint8_t* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}

// R bytes as the whole numbers of their low and high halves.
struct Nibbles {
    F low, high;
};

RP_INLINE Nibbles fload_u4(const uint8_t* p) {
    const __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return {_mm512_cvtepi32_ps(_mm512_and_si512(b, _mm512_set1_epi32(15))),
            _mm512_cvtepi32_ps(_mm512_srli_epi32(b, 4))};
}

// Whole numbers to R int16, the middle two of every four swapped.
RP_INLINE void fstore_swapped(int16_t* p, F v) {
    const __m512i i = _mm512_shuffle_epi32(_mm512_cvtps_epi32(v), _MM_PERM_DBCA);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(i));
}

// R pairs of int16, and sums of the products of pairs.
using H = __m512i;
using S = __m512i;
RP_INLINE H hload(const int16_t* p) { return _mm512_loadu_si512(p); }

// One pair for all lanes.
RP_INLINE H hset(const int16_t* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
}

// Whole numbers in the range of int16 to R pairs.
RP_INLINE void hstore(int16_t* p, F first, F second) {
    const __m512i high = _mm512_slli_epi32(_mm512_cvtps_epi32(second), 16);
    const __m512i low = _mm512_cvtps_epi32(first);
    _mm512_storeu_si512(p, _mm512_mask_blend_epi16(0xaaaaaaaa, low, high));
}

RP_INLINE void hstore(int16_t* p, H v) { _mm512_storeu_si512(p, v); }
RP_INLINE H hadd(H a, H b) { return _mm512_add_epi16(a, b); }

// a * 2^N * b / 2^15, rounded.
template <int N>
RP_INLINE H hscale(H a, H b) {
    return _mm512_mulhrs_epi16(_mm512_slli_epi16(a, N), b);
}

RP_INLINE S szero() { return _mm512_setzero_si512(); }
RP_INLINE S sdot(S sum, H a, H b) { return _mm512_dpwssd_epi32(sum, a, b); }
RP_INLINE I stotal(S sum) { return sum; }

RP_INLINE W wload(const uint8_t* p) { return _mm512_loadu_si512(p); }
RP_INLINE void wstore(uint8_t* p, W w) { _mm512_storeu_si512(p, w); }
RP_INLINE W wor(W a, W b) { return _mm512_or_si512(a, b); }
RP_INLINE W wlow(W w) { return _mm512_and_si512(w, _mm512_set1_epi8(0x0f)); }
RP_INLINE W whigh(W w) { return wlow(_mm512_srli_epi16(w, 4)); }

// Bits SHIFT.. of every byte, moved to bit 4 and masked.
template <int SHIFT>
RP_INLINE W wplane(W w, char mask) {
    if constexpr (SHIFT < 4)
        return _mm512_and_si512(_mm512_slli_epi16(w, 4 - SHIFT), _mm512_set1_epi8(mask));
    else
        return _mm512_and_si512(_mm512_srli_epi16(w, SHIFT - 4), _mm512_set1_epi8(mask));
}

// A weight vector as two of 16 bits: columns 0 and 2, columns 1 and 3 of every row.
struct Pair {
    __m512i even, odd;
};

template <bool SIGNED>
RP_INLINE Pair widen(W w) {
    if constexpr (SIGNED)
        return {_mm512_srai_epi16(_mm512_slli_epi16(w, 8), 8), _mm512_srai_epi16(w, 8)};
    else
        return {_mm512_and_si512(w, _mm512_set1_epi16(0xff)), _mm512_srli_epi16(w, 8)};
}

template <int X>
RP_INLINE Pair minus(Pair w) {
    const __m512i x = _mm512_set1_epi16(X);
    return {_mm512_sub_epi16(w.even, x), _mm512_sub_epi16(w.odd, x)};
}

RP_INLINE Pair load_pair(const uint8_t* p) { return {wload(p), wload(p + sizeof(W))}; }

RP_INLINE void store_pair(uint8_t* p, Pair w) {
    wstore(p, w.even);
    wstore(p + sizeof(W), w.odd);
}

// Four activations for every row: columns 0 and 2, columns 1 and 3.
RP_INLINE Pair broadcast_pair(const int16_t* p) {
    int32_t even, odd;
    std::memcpy(&even, p, sizeof even);
    std::memcpy(&odd, p + 2, sizeof odd);
    return {_mm512_set1_epi32(even), _mm512_set1_epi32(odd)};
}

RP_INLINE I iset(int32_t x) { return _mm512_set1_epi32(x); }

RP_INLINE I dot(I sum, Pair w, Pair a) {
    sum = _mm512_dpwssd_epi32(sum, w.even, a.even);
    return _mm512_dpwssd_epi32(sum, w.odd, a.odd);
}

// Sums of products of up to 32 columns: of nibbles, and of bytes, four of them for every row.
using B = __m512i;
RP_INLINE B bzero() { return _mm512_setzero_si512(); }
RP_INLINE B bdot(B sum, W nibbles, const int8_t* bytes) {
    int32_t four;
    std::memcpy(&four, bytes, sizeof four);
    return _mm512_dpbusd_epi32(sum, nibbles, _mm512_set1_epi32(four));
}
RP_INLINE I btotal(B sum) { return sum; }

}  // namespace RP_NS
