// AVX2 + FMA + F16C: eight float lanes, 32-byte weight vectors of 8 rows x 4 columns.
#pragma once
#include <immintrin.h>

#include <cstring>

namespace RP_NS {

using F = __m256;
using I = __m256i;
using W = __m256i;
constexpr int R = 8;

RP_INLINE F fset(float x) { return _mm256_set1_ps(x); }
RP_INLINE F fzero() { return _mm256_setzero_ps(); }
RP_INLINE F fload(const float* p) { return _mm256_loadu_ps(p); }
RP_INLINE void fstore(float* p, F v) { _mm256_storeu_ps(p, v); }
RP_INLINE F fadd(F a, F b) { return _mm256_add_ps(a, b); }
RP_INLINE F fsub(F a, F b) { return _mm256_sub_ps(a, b); }
RP_INLINE F fmul(F a, F b) { return _mm256_mul_ps(a, b); }
RP_INLINE F fdiv(F a, F b) { return _mm256_div_ps(a, b); }
RP_INLINE F ffma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
RP_INLINE F fmaxv(F a, F b) { return _mm256_max_ps(a, b); }
RP_INLINE F fminv(F a, F b) { return _mm256_min_ps(a, b); }
RP_INLINE F fabsv(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
RP_INLINE F fround(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
RP_INLINE F fcvt(I a) { return _mm256_cvtepi32_ps(a); }

// a > b ? x : y
RP_INLINE F fselect_gt(F a, F b, F x, F y) {
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}

// 2^n of whole numbers n in -126..127
RP_INLINE F fpow2(F n) {
    const __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
}

// y in 1/2..2 times 2 to the power n, where t is n + kRounder and n in -127..127; 0 for 1 * 2^-127.
RP_INLINE F fshift(F y, F t) {
    const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), n));
}

RP_INLINE float fsum(F v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

RP_INLINE float fmaxh(F v) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

// out[j] = the sum of v[j], for four vectors.
RP_INLINE void fsum4(float* out, const F* v) {
    const F s = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}

RP_INLINE F fload_f16(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

RP_INLINE void fstore_f16(uint8_t* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

RP_INLINE F fload_bf16(const uint8_t* p) {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

RP_INLINE F fload_s8(const uint8_t* p) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

// Whole numbers from -128 to 127 to R bytes.
RP_INLINE void fstore_s8(uint8_t* p, F v) {
    const __m256i i = _mm256_cvtps_epi32(v);
    const __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(h, h));
}

// R bytes as the whole numbers of their low and high halves.
struct Nibbles {
    F low, high;
};

RP_INLINE Nibbles fload_u4(const uint8_t* p) {
    const __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return {_mm256_cvtepi32_ps(_mm256_and_si256(b, _mm256_set1_epi32(15))),
            _mm256_cvtepi32_ps(_mm256_srli_epi32(b, 4))};
}

// Whole numbers to R int16, the middle two of every four swapped.
RP_INLINE void fstore_swapped(int16_t* p, F v) {
    const __m256i i = _mm256_cvtps_epi32(v);
    __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
    h = _mm_shufflehi_epi16(_mm_shufflelo_epi16(h, 0xd8), 0xd8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), h);
}

// R pairs of int16, and sums of the products of pairs.
using H = __m256i;
using S = __m256i;
RP_INLINE H hload(const int16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// One pair for all lanes.
RP_INLINE H hset(const int16_t* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return _mm256_set1_epi32(pair);
}

// Whole numbers in the range of int16 to R pairs.
RP_INLINE void hstore(int16_t* p, F first, F second) {
    const __m256i high = _mm256_slli_epi32(_mm256_cvtps_epi32(second), 16);
    const __m256i pairs = _mm256_blend_epi16(_mm256_cvtps_epi32(first), high, 0xaa);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), pairs);
}

RP_INLINE void hstore(int16_t* p, H v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
}
RP_INLINE H hadd(H a, H b) { return _mm256_add_epi16(a, b); }

// a * 2^N * b / 2^15, rounded.
template <int N>
RP_INLINE H hscale(H a, H b) {
    return _mm256_mulhrs_epi16(_mm256_slli_epi16(a, N), b);
}

RP_INLINE S szero() {
    S zero = _mm256_setzero_si256();
#if defined(__GNUC__)
    asm("" : "+x"(zero));  // GCC moves sums that begin with a known 0 away from their products
#endif
    return zero;
}
RP_INLINE S sdot(S sum, H a, H b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
RP_INLINE I stotal(S sum) { return sum; }

RP_INLINE W wload(const uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
RP_INLINE void wstore(uint8_t* p, W w) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), w);
}
RP_INLINE W wor(W a, W b) { return _mm256_or_si256(a, b); }
RP_INLINE W wlow(W w) { return _mm256_and_si256(w, _mm256_set1_epi8(0x0f)); }
RP_INLINE W whigh(W w) { return wlow(_mm256_srli_epi16(w, 4)); }

// Bits SHIFT.. of every byte, moved to bit 4 and masked.
template <int SHIFT>
RP_INLINE W wplane(W w, char mask) {
    if constexpr (SHIFT < 4)
        return _mm256_and_si256(_mm256_slli_epi16(w, 4 - SHIFT), _mm256_set1_epi8(mask));
    else
        return _mm256_and_si256(_mm256_srli_epi16(w, SHIFT - 4), _mm256_set1_epi8(mask));
}

// A weight vector as two of 16 bits: columns 0 and 2, columns 1 and 3 of every row.
struct Pair {
    __m256i even, odd;
};

template <bool SIGNED>
RP_INLINE Pair widen(W w) {
    if constexpr (SIGNED)
        return {_mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8), _mm256_srai_epi16(w, 8)};
    else
        return {_mm256_and_si256(w, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(w, 8)};
}

template <int X>
RP_INLINE Pair minus(Pair w) {
    const __m256i x = _mm256_set1_epi16(X);
    return {_mm256_sub_epi16(w.even, x), _mm256_sub_epi16(w.odd, x)};
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
    return {_mm256_set1_epi32(even), _mm256_set1_epi32(odd)};
}

RP_INLINE I iset(int32_t x) { return _mm256_set1_epi32(x); }

RP_INLINE I dot(I sum, Pair w, Pair a) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(w.even, a.even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w.odd, a.odd));
}

// Sums of products of up to 32 columns: of nibbles, and of bytes, four of them for every row.
using B = __m256i;
RP_INLINE B bzero() { return _mm256_setzero_si256(); }
RP_INLINE B bdot(B sum, W nibbles, const int8_t* bytes) {
    int32_t four;
    std::memcpy(&four, bytes, sizeof four);
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(nibbles, _mm256_set1_epi32(four)));
}
RP_INLINE I btotal(B sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }

}  // namespace RP_NS
