// The checksum of zlib, by carry-less products.
#pragma once
#include <cstdint>

namespace rp {

// Whether this machine has the instructions.
bool has_crc32();

// zlib's crc32 of n bytes; only where has_crc32().
uint32_t crc32(const uint8_t* data, int64_t n);

}  // namespace rp
