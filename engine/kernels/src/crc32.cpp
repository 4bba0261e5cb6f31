// Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction",
// Intel 2009, with its constants for the bit-reflected polynomial of zlib.
#include "crc32.h"

#include <cstring>

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

// Reads 16 bytes after another, and writes them past the cache where there is a target, which is
// aligned.
template <bool kCopies>
struct Stream {
    const uint8_t* from;
    uint8_t* to;

    RP_CLMUL __m128i next() {
        const __m128i x = load(from);
        from += 16;
        if (kCopies) {
            _mm_stream_si128(reinterpret_cast<__m128i*>(to), x);
            to += 16;
        }
        return x;
    }
};

// n: at least 64, a multiple of 16.
template <bool kCopies>
RP_CLMUL uint32_t add_blocks(uint32_t state, Stream<kCopies> data, int64_t n) {
    __m128i a = _mm_xor_si128(data.next(), _mm_cvtsi32_si128(static_cast<int>(state)));
    __m128i b = data.next();
    __m128i c = data.next();
    __m128i d = data.next();
    const __m128i by_512 = pair(0x0154442bd4, 0x01c6e41596);
    int64_t at = 64;
    for (; at + 64 <= n; at += 64) {
        a = fold(a, by_512, data.next());
        b = fold(b, by_512, data.next());
        c = fold(c, by_512, data.next());
        d = fold(d, by_512, data.next());
    }
    const __m128i by_128 = pair(0x01751997d0, 0x00ccaa009e);
    a = fold(fold(fold(a, by_128, b), by_128, c), by_128, d);
    for (; at < n; at += 16) a = fold(a, by_128, data.next());
    if (kCopies) _mm_sfence();
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
        state = add_blocks(state, Stream<false>{data, nullptr}, done);
    }
#endif
    return ~add_bytes(state, data + done, n - done);
}

uint32_t copy_crc32(uint8_t* to, const uint8_t* from, int64_t n) {
    uint32_t state = ~0u;
    int64_t done = 0;
#if defined(RP_HAS_CLMUL)
    if (n >= 64 && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
        done = n / 16 * 16;
        state = add_blocks(state, Stream<true>{from, to}, done);
    }
#endif
    if (done == 0) {
        std::memcpy(to, from, static_cast<size_t>(n));
        return crc32(to, n);
    }
    std::memcpy(to + done, from + done, static_cast<size_t>(n - done));
    return ~add_bytes(state, from + done, n - done);
}

}  // namespace rp
