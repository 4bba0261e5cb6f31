#include "pack_parts.h"

#include <cstring>

#include "gguf_blocks.h"
#include "half.h"

namespace rp {
namespace {

void put_word(uint8_t* p, uint32_t w) { std::memcpy(p, &w, sizeof w); }

constexpr uint32_t kBytes = 0x01010101u;

// The high bits of vectors 2 i and 2 i + 1; between them one bit of vector 6, above them of vector 7.
uint32_t high_word(const uint32_t* w, int i) {
    const uint32_t even = (w[2 * i] >> 5) & (7 * kBytes), odd = (w[2 * i + 1] >> 5) & (7 * kBytes);
    const uint32_t sixth = (w[6] >> (5 + i)) & kBytes, seventh = (w[7] >> (5 + i)) & kBytes;
    return even | (sixth << 3) | (odd << 4) | (seventh << 7);
}

// One bit of every vector.
uint32_t middle_word(const uint32_t* w) {
    uint32_t word = 0;
    for (int j = 0; j < 8; ++j) word |= ((w[j] >> 4) & kBytes) << j;
    return word;
}

// Where the parts of one tile begin.
struct Tile {
    uint8_t* high;
    uint8_t* scales;
    uint8_t* middle;
    uint8_t* low;
};

class Parts {
public:
    Parts(int lanes, int64_t tiles, int64_t groups, uint8_t* out)
        : vector_(4 * lanes), lanes_(lanes), tiles_(tiles), groups_(groups), out_(out) {}

    Tile tile(int64_t i) const {
        uint8_t* high = out_ + i * groups_ * high_bytes();
        uint8_t* middle = out_ + tiles_ * groups_ * high_bytes();
        return {high, high + groups_ * 3 * vector_, middle + i * groups_ * vector_,
                middle + (tiles_ + 4 * i) * groups_ * vector_};
    }

    void clear(int64_t i) const {
        const Tile t = tile(i);
        std::memset(t.high, 0, static_cast<size_t>(groups_ * high_bytes()));
        std::memset(t.middle, 0, static_cast<size_t>(groups_ * vector_));
        std::memset(t.low, 0, static_cast<size_t>(groups_ * 4 * vector_));
    }

    void put(const Tile& t, int64_t group, int lane, const Group& g) const {
        uint32_t w[8];
        std::memcpy(w, g.q, sizeof w);
        for (uint32_t& word : w) word ^= 0x80808080u;
        for (int i = 0; i < 3; ++i)
            put_word(t.high + (3 * group + i) * vector_ + 4 * lane, high_word(w, i));
        put_word(t.middle + group * vector_ + 4 * lane, middle_word(w));
        for (int j = 0; j < 4; ++j)
            put_word(t.low + (4 * group + j) * vector_ + 4 * lane,
                     (w[j] & 0x0f0f0f0fu) | ((w[j + 4] & 0x0f0f0f0fu) << 4));
        store_f16(t.scales + (group * lanes_ + lane) * 2, g.d[0]);
    }

private:
    int64_t high_bytes() const { return 3 * vector_ + 2 * lanes_; }

    const int64_t vector_, lanes_, tiles_, groups_;
    uint8_t* const out_;
};

}  // namespace

void pack_parts(int lanes, const uint8_t* raw, int64_t rows, int64_t columns, int64_t first,
                int64_t last, uint8_t* out) {
    const int64_t groups = columns / 32, tiles = (rows + lanes - 1) / lanes;
    const int64_t raw_stride = row_bytes(GGML_Q8_0, columns);
    const Parts parts(lanes, tiles, groups, out);
    if (last == tiles && rows % lanes != 0) parts.clear(last - 1);
    for (int64_t row = first * lanes; row < last * lanes && row < rows; ++row) {
        const Tile tile = parts.tile(row / lanes);
        Group g;
        for (int64_t i = 0; i < groups; ++i) {
            decode_group(GGML_Q8_0, raw + row * raw_stride, i, g);
            parts.put(tile, i, static_cast<int>(row % lanes), g);
        }
    }
}

}  // namespace rp
