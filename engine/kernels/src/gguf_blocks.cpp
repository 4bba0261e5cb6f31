#include "gguf_blocks.h"

#include <cstring>

#include "half.h"

namespace rp {
namespace {

// Eight bytes at a time: loading a model is little else than this.
uint64_t load_bytes(const uint8_t* p) {
    uint64_t bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    return bytes;
}

void store_bytes(uint8_t* p, uint64_t bytes) { std::memcpy(p, &bytes, sizeof bytes); }

constexpr uint64_t kEachByte = 0x0101010101010101u;

// Some bits of every byte, moved down.
uint64_t bits_of(uint64_t bytes, int shift, unsigned mask) {
    return (bytes >> shift) & (kEachByte * mask);
}

void nibbles(const uint8_t* qs, uint8_t* q) {
    for (int i = 0; i < 16; i += 8) {
        const uint64_t bytes = load_bytes(qs + i);
        store_bytes(q + i, bits_of(bytes, 0, 15));
        store_bytes(q + i + 16, bits_of(bytes, 4, 15));
    }
}

// Bit i of the byte as bit 0 of byte i.
uint64_t spread_bits(uint8_t byte) {
    // Every byte keeps a bit of its own, and adding what it lacks to 128 carries it to the top.
    const uint64_t own = (kEachByte * byte) & 0x8040201008040201u;
    return bits_of(own + 0x00406070787c7e7fu, 7, 1);
}

void add_fifth_bits(const uint8_t* qh, uint8_t* q) {
    for (int i = 0; i < 4; ++i)
        store_bytes(q + 8 * i, load_bytes(q + 8 * i) | (spread_bits(qh[i]) << 4));
}

void set_scales(Group& out, float d, float m) {
    out.d[0] = out.d[1] = d;
    out.m = m;
}

void decode_q4_0(const uint8_t* p, Group& out) {
    set_scales(out, load_f16(p), 0.0f);
    nibbles(p + 2, out.q);
}

void decode_q4_1(const uint8_t* p, Group& out) {
    set_scales(out, load_f16(p), load_f16(p + 2));
    nibbles(p + 4, out.q);
}

void decode_q5_0(const uint8_t* p, Group& out) {
    set_scales(out, load_f16(p), 0.0f);
    nibbles(p + 6, out.q);
    add_fifth_bits(p + 2, out.q);
}

void decode_q5_1(const uint8_t* p, Group& out) {
    set_scales(out, load_f16(p), load_f16(p + 2));
    nibbles(p + 8, out.q);
    add_fifth_bits(p + 4, out.q);
}

void decode_q8_0(const uint8_t* p, Group& out) {
    set_scales(out, load_f16(p), 0.0f);
    std::memcpy(out.q, p + 2, 32);
}

// Six-bit scale and min of group j of a K block.
void k_scales(const uint8_t* p, int j, Group& out) {
    const uint8_t* s = p + 4;
    int scale = s[j] & 63, min = s[j + 4] & 63;
    if (j >= 4) {
        scale = (s[j + 4] & 0x0f) | ((s[j - 4] >> 6) << 4);
        min = (s[j + 4] >> 4) | ((s[j] >> 6) << 4);
    }
    const float d = load_f16(p), dmin = load_f16(p + 2);
    set_scales(out, d * static_cast<float>(scale), -dmin * static_cast<float>(min));
}

void decode_q4_k(const uint8_t* p, int j, Group& out) {
    k_scales(p, j, out);
    const uint8_t* qs = p + 16 + 32 * (j / 2);
    for (int i = 0; i < 32; i += 8)
        store_bytes(out.q + i, bits_of(load_bytes(qs + i), j % 2 * 4, 15));
}

void decode_q5_k(const uint8_t* p, int j, Group& out) {
    k_scales(p, j, out);
    const uint8_t* qh = p + 16;
    const uint8_t* qs = p + 48 + 32 * (j / 2);
    for (int i = 0; i < 32; i += 8) {
        const uint64_t low = bits_of(load_bytes(qs + i), j % 2 * 4, 15);
        store_bytes(out.q + i, low | (bits_of(load_bytes(qh + i), j, 1) << 4));
    }
}

void decode_q6_k(const uint8_t* p, int j, Group& out) {
    const int half = j / 4, quarter = j % 4;
    const uint8_t* ql = p + 64 * half + 32 * (quarter % 2);
    const uint8_t* qh = p + 128 + 32 * half;
    for (int i = 0; i < 32; i += 8) {
        const uint64_t low = bits_of(load_bytes(ql + i), quarter < 2 ? 0 : 4, 15);
        store_bytes(out.q + i, low | (bits_of(load_bytes(qh + i), 2 * quarter, 3) << 4));
    }
    const float d = load_f16(p + 208);
    for (int i = 0; i < 2; ++i) {
        const int8_t scale = static_cast<int8_t>(p[192 + 8 * half + 2 * quarter + i]);
        out.d[i] = d * static_cast<float>(scale);
    }
    out.m = 0.0f;
}

}  // namespace

int kind_of(int type) {
    switch (type) {
        case GGML_Q4_0: return RP_Q4S;
        case GGML_Q4_1:
        case GGML_Q4_K: return RP_Q4A;
        case GGML_Q5_0: return RP_Q5S;
        case GGML_Q5_1:
        case GGML_Q5_K: return RP_Q5A;
        case GGML_Q3_K:
        case GGML_Q6_K: return RP_Q6S;
        case GGML_IQ4_NL:
        case GGML_IQ4_XS:
        case GGML_MXFP4:
        case GGML_Q8_0: return RP_Q8S;
        default: return -1;
    }
}

int offset_of(int kind) {
    switch (kind) {
        case RP_Q4S: return 8;
        case RP_Q5S: return 16;
        case RP_Q6S: return 32;
        default: return 0;
    }
}

int64_t row_bytes(int type, int64_t n) {
    switch (type) {
        case GGML_F32: return 4 * n;
        case GGML_F16:
        case GGML_BF16: return 2 * n;
        case GGML_Q4_0: return n / 32 * 18;
        case GGML_Q4_1: return n / 32 * 20;
        case GGML_Q5_0: return n / 32 * 22;
        case GGML_Q5_1: return n / 32 * 24;
        case GGML_Q8_0: return n / 32 * 34;
        case GGML_Q4_K: return n / 256 * 144;
        case GGML_Q5_K: return n / 256 * 176;
        case GGML_Q6_K: return n / 256 * 210;
        case GGML_Q2_K: return n / 256 * 84;
        case GGML_Q3_K: return n / 256 * 110;
        case GGML_IQ4_NL: return n / 32 * 18;
        case GGML_IQ4_XS: return n / 256 * 136;
        case GGML_MXFP4: return n / 32 * 17;
        default: return -1;
    }
}

void decode_group(int type, const uint8_t* row, int64_t group, Group& out) {
    const int j = static_cast<int>(group % 8);
    switch (type) {
        case GGML_Q4_0: return decode_q4_0(row + 18 * group, out);
        case GGML_Q4_1: return decode_q4_1(row + 20 * group, out);
        case GGML_Q5_0: return decode_q5_0(row + 22 * group, out);
        case GGML_Q5_1: return decode_q5_1(row + 24 * group, out);
        case GGML_Q8_0: return decode_q8_0(row + 34 * group, out);
        case GGML_Q4_K: return decode_q4_k(row + 144 * (group / 8), j, out);
        case GGML_Q5_K: return decode_q5_k(row + 176 * (group / 8), j, out);
        case GGML_Q6_K: return decode_q6_k(row + 210 * (group / 8), j, out);
        case GGML_Q3_K: return decode_q3_k(row + 110 * (group / 8), j, out);
        case GGML_IQ4_NL: return decode_iq4_nl(row + 18 * group, out);
        case GGML_IQ4_XS: return decode_iq4_xs(row + 136 * (group / 8), j, out);
        case GGML_MXFP4: return decode_mxfp4(row + 17 * group, out);
        default: std::memset(&out, 0, sizeof out);
    }
}

void dequantize_row(int type, const uint8_t* row, int64_t n, float* out) {
    if (type == GGML_F32) {
        std::memcpy(out, row, static_cast<size_t>(n) * sizeof(float));
        return;
    }
    if (type == GGML_F16 || type == GGML_BF16) {
        for (int64_t i = 0; i < n; ++i)
            out[i] = type == GGML_F16 ? load_f16(row + 2 * i) : load_bf16(row + 2 * i);
        return;
    }
    if (type == GGML_Q2_K) {
        for (int64_t i = 0; i < n; i += 256) dequantize_q2_k(row + i / 256 * 84, out + i);
        return;
    }
    const int kind = kind_of(type), offset = offset_of(kind);
    Group g;
    for (int64_t i = 0; i < n; ++i) {
        if (i % 32 == 0) decode_group(type, row, i / 32, g);
        const int q = kind == RP_Q8S ? static_cast<int8_t>(g.q[i % 32]) : g.q[i % 32] - offset;
        out[i] = g.d[i % 32 / 16] * static_cast<float>(q) + g.m;
    }
}

}  // namespace rp
