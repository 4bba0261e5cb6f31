// Numbers that some of many floats are not below, found by counting.
#pragma once

namespace RP_NS {

constexpr int kDigitBits = 11;
constexpr uint32_t kLastDigit = (1u << kDigitBits) - 1;

// Whole numbers in the order of floats.
RP_INLINE uint32_t rank_of(float x) {
    const uint32_t bits = float_to_bits(x);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

RP_INLINE float float_of_rank(uint32_t rank) {
    return bits_to_float(rank >> 31 ? rank & 0x7fffffffu : ~rank);
}

// The digit of the number that `wanted` are not below, of those whose ranks begin with prefix;
// wanted becomes its place among those that share the digit. visit(f) calls f for all numbers.
template <class Visit>
static uint32_t find_digit(Visit visit, int shift, uint64_t prefix, int32_t* counts,
                           int64_t& wanted) {
    std::memset(counts, 0, sizeof(int32_t) << kDigitBits);
    visit([&](float x) {
        const uint64_t rank = rank_of(x);
        if (rank >> (shift + kDigitBits) == prefix) ++counts[rank >> shift & kLastDigit];
    });
    uint32_t digit = kLastDigit;
    for (; digit > 0 && counts[digit] < wanted; --digit) wanted -= counts[digit];
    return digit;
}

// A number that `wanted` are not below, near the largest such.
template <class Visit>
static float find_threshold(Visit visit, const rp::Worker& worker, int64_t wanted) {
    int32_t* counts = reinterpret_cast<int32_t*>(worker.scratch);
    constexpr int kShift = 32 - kDigitBits;
    const uint32_t first = find_digit(visit, kShift, 0, counts, wanted);
    const uint32_t second = find_digit(visit, kShift - kDigitBits, first, counts, wanted);
    return float_of_rank(first << kShift | second << (kShift - kDigitBits));
}

}  // namespace RP_NS
