// Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction",
// Intel 2009, with its constants for the bit-reflected polynomial of zlib.
#include "crc32.h"

#if defined(__x86_64__) || defined(_M_X64)
#define RP_HAS_CLMUL 1
#include <immintrin.h>
#if defined(_MSC_VER)
#include <intrin.h>
#define RP_CLMUL
#else
#define RP_CLMUL __attribute__((target("pclmul,sse4.1")))
#endif
#endif

namespace rp {
namespace {

constexpr uint32_t kPolynomial = 0xedb88320u;

// One bit after another, for the few bytes at the end.
uint32_t add_bytes(uint32_t state, const uint8_t* data, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        state ^= data[i];
        for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ (state & 1 ? kPolynomial : 0);
    }
    return state;
}

#if defined(RP_HAS_CLMUL)

RP_CLMUL inline __m128i load(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

RP_CLMUL inline __m128i pair(uint64_t low, uint64_t high) {
    return _mm_set_epi64x(static_cast<int64_t>(high), static_cast<int64_t>(low));
}

// What x stands for so many bits further on, and what lies there.
RP_CLMUL inline __m128i fold(__m128i x, __m128i factors, __m128i there) {
    const __m128i low = _mm_clmulepi64_si128(x, factors, 0x00);
    const __m128i high = _mm_clmulepi64_si128(x, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

RP_CLMUL uint32_t reduce(__m128i x) {
    const __m128i mask = _mm_setr_epi32(-1, 0, -1, 0);
    const __m128i by_128 = pair(0x01751997d0, 0x00ccaa009e);
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, by_128, 0x10));
    const __m128i by_64 = pair(0x0163cd6124, 0);
    const __m128i low = _mm_clmulepi64_si128(_mm_and_si128(x, mask), by_64, 0x00);
    x = _mm_xor_si128(_mm_srli_si128(x, 4), low);
    const __m128i barrett = pair(0x01db710641, 0x01f7011641);
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(x, mask), barrett, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, mask), barrett, 0x00);
    return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(x, quotient), 1));
}

// n: at least 64, a multiple of 16.
RP_CLMUL uint32_t add_blocks(uint32_t state, const uint8_t* data, int64_t n) {
    __m128i a = _mm_xor_si128(load(data), _mm_cvtsi32_si128(static_cast<int>(state)));
    __m128i b = load(data + 16), c = load(data + 32), d = load(data + 48);
    const __m128i by_512 = pair(0x0154442bd4, 0x01c6e41596);
    int64_t at = 64;
    for (; at + 64 <= n; at += 64) {
        const uint8_t* p = data + at;
        a = fold(a, by_512, load(p));
        b = fold(b, by_512, load(p + 16));
        c = fold(c, by_512, load(p + 32));
        d = fold(d, by_512, load(p + 48));
    }
    const __m128i by_128 = pair(0x01751997d0, 0x00ccaa009e);
    a = fold(fold(fold(a, by_128, b), by_128, c), by_128, d);
    for (; at < n; at += 16) a = fold(a, by_128, load(data + at));
    return reduce(a);
}

#endif

}  // namespace

bool has_crc32() {
#if defined(RP_HAS_CLMUL) && defined(_MSC_VER)
    int registers[4];
    __cpuid(registers, 1);
    constexpr int kClmulSse41 = 1 << 1 | 1 << 19;
    return (registers[2] & kClmulSse41) == kClmulSse41;
#elif defined(RP_HAS_CLMUL)
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#else
    return false;
#endif
}

uint32_t crc32(const uint8_t* data, int64_t n) {
    uint32_t state = ~0u;
    int64_t done = 0;
#if defined(RP_HAS_CLMUL)
    if (n >= 64) {
        done = n / 16 * 16;
        state = add_blocks(state, data, done);
    }
#endif
    return ~add_bytes(state, data + done, n - done);
}

}  // namespace rp
