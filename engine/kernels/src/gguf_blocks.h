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
    GGML_Q4_K = 12,
    GGML_Q5_K = 13,
    GGML_Q6_K = 14,
    GGML_BF16 = 30,
};

// The kind a type is packed as, or -1 when it has no packed form.
int kind_of(int type);

// What is subtracted from the stored number before scaling.
int offset_of(int kind);

// Bytes of a row of n weights, or -1 for an unknown type.
int64_t row_bytes(int type, int64_t n);

void decode_group(int type, const uint8_t* row, int64_t group, Group& out);
void dequantize_row(int type, const uint8_t* row, int64_t n, float* out);

}  // namespace rp
