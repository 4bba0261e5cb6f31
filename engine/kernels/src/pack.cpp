#include "pack.h"

#include <cstring>

#include "gguf_blocks.h"
#include "half.h"

namespace rp {
namespace {

int64_t quant_bytes(int kind, int lanes) {
    switch (kind) {
        case RP_Q4A:
        case RP_Q4S: return 16 * lanes;
        case RP_Q5A:
        case RP_Q5S: return 20 * lanes;
        case RP_Q6S: return 24 * lanes;
        default: return 32 * lanes;
    }
}

int num_scales(int kind) {
    return kind == RP_Q4A || kind == RP_Q5A || kind == RP_Q6S ? 2 : 1;
}

// byte: position of the row's column inside a vector.
void put_quant(int kind, int lanes, uint8_t* out, int vector, int byte, uint8_t q) {
    const int width = 4 * lanes;
    if (kind == RP_Q8S) {
        out[vector * width + byte] = q;
        return;
    }
    const int low = q & 0x0f, high = q >> 4;
    out[(vector % 4) * width + byte] |= static_cast<uint8_t>(vector < 4 ? low : low << 4);
    uint8_t* planes = out + 4 * width + byte;
    if (kind == RP_Q5A || kind == RP_Q5S) *planes |= static_cast<uint8_t>(high << vector);
    if (kind == RP_Q6S)
        planes[vector / 4 * width] |= static_cast<uint8_t>(high << (2 * (vector % 4)));
}

void put_group(int kind, int lanes, int lane, const Group& g, uint8_t* out) {
    for (int k = 0; k < 32; ++k) put_quant(kind, lanes, out, k / 4, 4 * lane + k % 4, g.q[k]);
    uint8_t* scales = out + quant_bytes(kind, lanes) + 2 * lane;
    store_f16(scales, g.d[0]);
    if (num_scales(kind) == 2) store_f16(scales + 2 * lanes, kind == RP_Q6S ? g.d[1] : g.m);
}

}  // namespace

int64_t group_bytes(int kind, int lanes) {
    return quant_bytes(kind, lanes) + 2 * lanes * num_scales(kind);
}

int64_t packed_bytes(int kind, int lanes, int64_t rows, int64_t columns) {
    return (rows + lanes - 1) / lanes * (columns / 32) * group_bytes(kind, lanes);
}

void pack_tiles(int type, int lanes, const uint8_t* raw, int64_t rows, int64_t columns,
                int64_t first, int64_t last, uint8_t* out) {
    const int kind = kind_of(type);
    const int64_t stride = group_bytes(kind, lanes), groups = columns / 32;
    const int64_t raw_stride = row_bytes(type, columns);
    std::memset(out + first * groups * stride, 0,
                static_cast<size_t>((last - first) * groups * stride));
    for (int64_t row = first * lanes; row < last * lanes && row < rows; ++row) {
        uint8_t* tile = out + row / lanes * groups * stride;
        const int lane = static_cast<int>(row % lanes);
        Group g;
        for (int64_t i = 0; i < groups; ++i) {
            decode_group(type, raw + row * raw_stride, i, g);
            put_group(kind, lanes, lane, g, tile + i * stride);
        }
    }
}

}  // namespace rp
