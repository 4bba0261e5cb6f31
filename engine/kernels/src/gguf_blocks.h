// GGUF block formats: one group of 32 weights at a time.
#pragma once
#include <cstdint>

#include "rp.h"

namespace rp {

// w = d[i / 16] * (q - offset) + m. For Q8S the bytes of q are signed.
struct Group {
    uint8_t q[32];
    float d[2];
    float m;
};

enum GgmlType {
    GGML_F32 = 0,
    GGML_F16 = 1,
    GGML_Q4_0 = 2,
    GGML_Q4_1 = 3,
    GGML_Q5_0 = 6,
    GGML_Q5_1 = 7,
    GGML_Q8_0 = 8,
    GGML_Q2_K = 10,
    GGML_Q3_K = 11,
    GGML_Q4_K = 12,
    GGML_Q5_K = 13,
    GGML_Q6_K = 14,
    GGML_IQ4_NL = 20,
    GGML_IQ4_XS = 23,
    GGML_BF16 = 30,
    GGML_MXFP4 = 39,
};

// The kind a type is packed as, or -1 when it has no packed form.
int kind_of(int type);

// What is subtracted from the stored number before scaling.
int offset_of(int kind);

// Bytes of a row of n weights, or -1 for an unknown type.
int64_t row_bytes(int type, int64_t n);

void decode_group(int type, const uint8_t* row, int64_t group, Group& out);
// Group j of a block of 256, or one block of 32; in gguf_rare_blocks.cpp.
void decode_q3_k(const uint8_t* p, int j, Group& out);
void decode_iq4_nl(const uint8_t* p, Group& out);
void decode_iq4_xs(const uint8_t* p, int j, Group& out);
void decode_mxfp4(const uint8_t* p, Group& out);
void dequantize_q2_k(const uint8_t* p, float* out);

void dequantize_row(int type, const uint8_t* row, int64_t n, float* out);

}  // namespace rp
