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

uint32_t low_nibbles(uint32_t w) { return w & 0x0f0f0f0fu; }

void put_word(uint8_t* p, uint32_t w) { std::memcpy(p, &w, sizeof w); }

// Bits 4.. of vectors first..first+count-1, side by side in every byte.
uint32_t plane_of(const uint32_t* w, int first, int count) {
    const int bits = 8 / count;
    const uint32_t mask = 0x01010101u * ((1u << bits) - 1);
    uint32_t plane = 0;
    for (int j = 0; j < count; ++j) plane |= ((w[first + j] >> 4) & mask) << (bits * j);
    return plane;
}

// w: the columns of one row, four to a word; out: where the row's word of vector 0 lies.
void put_quants(int kind, int width, const uint32_t* w, uint8_t* out) {
    if (kind == RP_Q8S) {
        for (int j = 0; j < 8; ++j) put_word(out + j * width, w[j]);
        return;
    }
    for (int j = 0; j < 4; ++j)
        put_word(out + j * width, low_nibbles(w[j]) | (low_nibbles(w[j + 4]) << 4));
    if (kind == RP_Q5A || kind == RP_Q5S) put_word(out + 4 * width, plane_of(w, 0, 8));
    if (kind != RP_Q6S) return;
    for (int half = 0; half < 2; ++half)
        put_word(out + (4 + half) * width, plane_of(w, 4 * half, 4));
}

void put_group(int kind, int lanes, int lane, const Group& g, uint8_t* out) {
    uint32_t words[8];
    std::memcpy(words, g.q, sizeof words);
    put_quants(kind, 4 * lanes, words, out + 4 * lane);
    uint8_t* scales = out + quant_bytes(kind, lanes) + 2 * lane;
    store_f16(scales, g.d[0]);
    if (num_scales(kind) == 2) store_f16(scales + 2 * lanes, kind == RP_Q6S ? g.d[1] : g.m);
}

// Groups that are packed row after row before the next ones: the tile's part stays in the cache.
constexpr int64_t kRun = 8;

// raw: the tile's first row.
void pack_tile(int type, int lanes, const uint8_t* raw, int64_t rows, int64_t columns,
               uint8_t* tile) {
    const int kind = kind_of(type);
    const int64_t stride = group_bytes(kind, lanes), groups = columns / 32;
    const int64_t raw_stride = row_bytes(type, columns);
    Group g;
    for (int64_t first = 0; first < groups; first += kRun)
        for (int lane = 0; lane < rows; ++lane)
            for (int64_t i = first; i < first + kRun && i < groups; ++i) {
                decode_group(type, raw + lane * raw_stride, i, g);
                put_group(kind, lanes, lane, g, tile + i * stride);
            }
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
    const int64_t tile_bytes = columns / 32 * group_bytes(kind_of(type), lanes);
    const int64_t raw_stride = row_bytes(type, columns);
    for (int64_t tile = first; tile < last; ++tile) {
        const int64_t row = tile * lanes, left = rows - row;
        uint8_t* at = out + tile * tile_bytes;
        if (left < lanes) std::memset(at, 0, static_cast<size_t>(tile_bytes));
        pack_tile(type, lanes, raw + row * raw_stride, left < lanes ? left : lanes, columns, at);
    }
}

}  // namespace rp
