// Formats that are packed as another kind with the same numbers: 3-bit weights among those of 6
// bits, tables of whole numbers among those of 8. Q2_K has no kind: two minima in a group of 32.
#include <cstring>

#include "gguf_blocks.h"
#include "half.h"

namespace rp {
namespace {

constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};
// Doubled.
constexpr int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void look_up(const int8_t* values, const uint8_t* qs, Group& out) {
    for (int i = 0; i < 16; ++i) {
        out.q[i] = static_cast<uint8_t>(values[qs[i] & 0x0f]);
        out.q[i + 16] = static_cast<uint8_t>(values[qs[i] >> 4]);
    }
}

void set_scale(Group& out, float d) {
    out.d[0] = out.d[1] = d;
    out.m = 0.0f;
}

// Two bits of weight i of group j; qs: of the block.
int crumb(const uint8_t* qs, int j, int i) { return (qs[32 * (j / 4) + i] >> (2 * (j % 4))) & 3; }

// 2^e as float bits would say it; e in -149..127.
float power_of_two(int e) {
    return e < -126 ? bits_to_float(1u << (e + 149)) : bits_to_float((e + 127u) << 23);
}

}  // namespace

void decode_q3_k(const uint8_t* p, int j, Group& out) {
    const uint8_t* scales = p + 96;
    for (int i = 0; i < 32; ++i)
        out.q[i] = static_cast<uint8_t>(28 + crumb(p + 32, j, i) + 4 * ((p[i] >> j) & 1));
    for (int half = 0; half < 2; ++half) {
        const int n = 2 * j + half;
        const int low = n < 8 ? scales[n] & 0x0f : scales[n - 8] >> 4;
        const int high = (scales[8 + n % 4] >> (2 * (n / 4))) & 3;
        out.d[half] = load_f16(p + 108) * static_cast<float>((low | (high << 4)) - 32);
    }
    out.m = 0.0f;
}

void decode_iq4_nl(const uint8_t* p, Group& out) {
    set_scale(out, load_f16(p));
    look_up(kIq4Values, p + 2, out);
}

void decode_iq4_xs(const uint8_t* p, int j, Group& out) {
    const int low = (p[4 + j / 2] >> (4 * (j % 2))) & 0x0f;
    const int high = (p[2 + j / 4] >> (2 * (j % 4))) & 3;
    set_scale(out, load_f16(p) * static_cast<float>((low | (high << 4)) - 32));
    look_up(kIq4Values, p + 8 + 16 * j, out);
}

void decode_mxfp4(const uint8_t* p, Group& out) {
    set_scale(out, power_of_two(p[0] - 128));
    look_up(kFp4Values, p + 1, out);
}

void dequantize_q2_k(const uint8_t* p, float* out) {
    const float d = load_f16(p + 80), dmin = load_f16(p + 82);
    for (int i = 0; i < 256; ++i) {
        const uint8_t scale = p[i / 16];
        const int q = crumb(p + 16, i / 32, i % 32);
        out[i] = d * static_cast<float>((scale & 0x0f) * q) - dmin * static_cast<float>(scale >> 4);
    }
}

}  // namespace rp
