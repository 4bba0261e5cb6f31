// Packed weights: tiles of `lanes` rows; per tile and group of 32 columns
//   quants  vector j (4 * lanes bytes) holds columns 4j..4j+3 of every row; for 4 to 6 bits the
//           low nibbles of vectors j and j + 4 share bytes,
//   planes  for 5 bits one vector with bit j of vector j, for 6 bits two vectors with 2 bits each,
//   scales  lanes f16 d (for 6 bits two of them: columns 0..15 and 16..31), then lanes f16 m for
//           the kinds that have one.
// The last tile is padded with zero rows.
#pragma once
#include <cstdint>

namespace rp {

int64_t group_bytes(int kind, int lanes);
int64_t packed_bytes(int kind, int lanes, int64_t rows, int64_t columns);

// Pack tiles first..last-1 of a matrix of a packable GGUF type.
void pack_tiles(int type, int lanes, const uint8_t* raw, int64_t rows, int64_t columns,
                int64_t first, int64_t last, uint8_t* out);

}  // namespace rp
