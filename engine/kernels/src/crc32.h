// The checksum of zlib, by carry-less products.
#pragma once
#include <cstdint>

namespace rp {

// Whether this machine has the instructions.
bool has_crc32();

// zlib's crc32 of n bytes; only where has_crc32().
uint32_t crc32(const uint8_t* data, int64_t n);

// The same of n bytes that are copied on the way; best where to is a multiple of 16. They must not
// overlap.
uint32_t copy_crc32(uint8_t* to, const uint8_t* from, int64_t n);

}  // namespace rp
