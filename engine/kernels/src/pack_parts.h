// Packed 8-bit weights whose bits lie apart, for a first look at some of them. A byte is stored plus
// 128. First, tile by tile, the highest three bits and behind those of a tile its scales; then for
// all tiles the next bit; then the low nibbles.
#pragma once
#include <cstdint>

namespace rp {

// Pack tiles first..last-1 of a matrix of Q8_0.
void pack_parts(int lanes, const uint8_t* raw, int64_t rows, int64_t columns, int64_t first,
                int64_t last, uint8_t* out);

}  // namespace rp
