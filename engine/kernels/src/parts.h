// 8-bit weights whose bits lie apart, as pack_parts.h tells.
#pragma once

namespace RP_NS {

RP_INLINE int64_t tiles_of(const RpMatrix& matrix) { return (matrix.num_rows + R - 1) / R; }

// The parts of one tile of rows.
struct Parts {
    static constexpr int kVector = 4 * R;
    const uint8_t *high, *scales, *middle, *low;
    static RP_INLINE_MEMBER Parts of(const RpMatrix& matrix, int64_t groups, int64_t tile) {
        constexpr int kHigh = 3 * kVector + 2 * R;
        const int64_t tiles = tiles_of(matrix);
        const uint8_t* high = matrix.data + tile * groups * kHigh;
        const uint8_t* middle = matrix.data + tiles * groups * kHigh;
        return {high, high + groups * 3 * kVector, middle + tile * groups * kVector,
                middle + (tiles + 4 * tile) * groups * kVector};
    }
};

// The high bits of vector J: three in the first half of a byte or in the second, or one in each of
// three vectors.
template <int J>
RP_INLINE W high_bits(const uint8_t* high) {
    constexpr int kVector = Parts::kVector;
    if constexpr (J < 6) return wplane<J % 2 ? 8 : 4>(wload(high + J / 2 * kVector), 7);
    constexpr int kShift = J == 6 ? 7 : 11;
    return wor(wplane<kShift>(wload(high), 1),
               wor(wplane<kShift - 1>(wload(high + kVector), 2),
                   wplane<kShift - 2>(wload(high + 2 * kVector), 4)));
}

}  // namespace RP_NS
