// Plain structures of the kernel library. engine/kernels/structs.py mirrors them field by field.
// Letters: T rows of the step, H query heads, K key/value heads, D head size, C hidden size.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {

// Packed weights of one matrix and where its product goes. out: (T, num_rows), stride in floats.
struct RpMatrix {
    const uint8_t* data;
    const float* bias;
    float* out;
    int64_t out_stride;
    int32_t num_rows;
    int32_t kind;
    int32_t is_added;
    int32_t reserved;
};

// Activations quantised to int16 in groups of 32: x = d * q. Of every four columns the second and
// the third are swapped in q. ds: d times the sum of q. sums: of q over each half group.
// has_spans: while rows are read, the groups of a span have one scale.
struct RpActs {
    int16_t* q;
    float* d;
    float* ds;
    int32_t* sums;
    int32_t width;
    int32_t has_spans;
};

// Rows start..end of the batch belong to one sequence; blocks: one slab per block_size tokens.
// first_place: of the first row among the tokens of the blocks. What is seen goes by places; they
// differ from the positions that keys are rotated by where tokens were left out.
// is_packed: 1 for every block that has the packed layout; null where none has.
struct RpSlice {
    int32_t start;
    int32_t end;
    int32_t first_place;
    int32_t num_blocks;
    uint8_t* const* blocks;
    const uint8_t* is_packed;
};

// Rows start..end of the batch belong to one sequence; data: its recurrent cell, written in place.
struct RpCell {
    int32_t start;
    int32_t end;
    float* data;
};

struct RpStep {
    const int32_t* token_ids;
    const int32_t* positions;
    const int32_t* logit_rows;
    const RpSlice* const* slices;  // one array per attention group
    int32_t num_rows;
    int32_t num_logit_rows;
    int32_t num_slices;
    int32_t num_groups;
    const RpCell* cells;  // one per sequence where layers are recurrent
    int32_t num_cells;
    int32_t num_sure;  // of a single row of logits, how many of the largest are exact; 0 is all
};

// Where one layer's numbers lie in a quantised block, in bytes: keys and values [head][token][width]
// and their float16 scales [head][token][scales]; engine/memory/codec.py describes the numbers.
struct RpPackedSlab {
    int64_t key_offset;
    int64_t value_offset;
    int64_t key_scale_offset;
    int64_t value_scale_offset;
    int32_t codec;
    int32_t reserved;
};

// Where one layer's keys and values lie in an exact block, in bytes: planes [head][token][head_dim].
// packed: the layout of quantised blocks, null where there are none. codec: RpCodec. window: tokens
// a query sees, 0 for all. rotation: RpRotation bits, of what is stored times the Hadamard matrix.
struct RpSlab {
    int64_t key_offset;
    int64_t value_offset;
    int64_t head_stride;
    int32_t group;
    int32_t block_size;
    int32_t codec;
    int32_t window;
    int32_t rotation;
    int32_t reserved;
    const RpPackedSlab* packed;
};

// One plane of every layer of a block, quantised: numbers are float16, (num_rows, width) per layer.
// Strides are in bytes, from a layer to the next. has_nibbles: 4 bits and a scale per 32 numbers,
// else 8 and one per row.
struct RpPlanePack {
    const uint8_t* numbers;
    uint8_t* out;
    uint8_t* scales;
    int64_t numbers_stride;
    int64_t out_stride;
    int64_t scales_stride;
    int32_t num_layers;
    int32_t num_rows;
    int32_t width;
    int32_t has_nibbles;
};

struct RpEmbed {
    const uint8_t* table;
    float* out;
    int64_t row_bytes;
    int32_t width;
    int32_t type;
    float scale;
    int32_t reserved;
};

// y = x * rsqrt(mean(x^2) + eps) * weight; written to out (added when is_added) and to acts.
struct RpNorm {
    const float* x;
    const float* weight;
    float* out;
    RpActs* acts;
    int32_t width;
    int32_t is_added;
    float eps;
    int32_t is_logit_rows;
};

struct RpLinear {
    const RpActs* acts;
    const RpMatrix* matrices;
    int32_t num_matrices;
    int32_t is_logit_rows;
};

// gate and up: (T, width) with strides in floats; up null: act(gate) alone.
struct RpGate {
    const float* gate;
    const float* up;
    float* out;
    RpActs* acts;
    int64_t stride;
    int32_t width;
    int32_t activation;  // 0 silu, 1 gelu (tanh), 2 none
};

struct RpTrig {
    const double* frequencies;  // radians per position
    float* cos_sin;             // (T, 2, num_pairs)
    float magnitude;
    int32_t num_pairs;
};

// Norm of q and k heads (optional), rotation, scaling of q, keys and values into their blocks.
struct RpRope {
    float* q;
    float* k;
    const float* v;
    const float* q_norm;
    const float* k_norm;
    const float* cos_sin;
    const RpSlab* slab;
    int64_t q_stride;
    int64_t k_stride;
    int64_t v_stride;
    int32_t num_heads;
    int32_t num_kv_heads;
    int32_t head_dim;
    int32_t num_pairs;
    int32_t is_neox;
    float q_scale;
    float eps;
    int32_t reserved;
};

struct RpAttend {
    const float* q;
    const float* sinks;
    const RpSlab* slab;
    float* out;
    RpActs* acts;
    int64_t q_stride;
    int32_t num_heads;
    int32_t num_kv_heads;
    int32_t head_dim;
    float soft_cap;
};

// Keep only the rows whose logits are wanted, in their order: of x, (T, width), of acts, and of
// floats, as wide as acts or null.
// What follows in the program sees a step of these rows alone. logit_rows must ascend.
struct RpSelect {
    float* x;
    RpActs* acts;
    float* floats;
    int32_t width;
    int32_t reserved;
};

// Products of float matrices with rows of x. data: rows of the file; kind: an RpCodec.
struct RpFloatLinear {
    const float* x;
    const RpMatrix* matrices;
    int64_t x_stride;
    int32_t width;
    int32_t num_matrices;
    int32_t is_logit_rows;
    int32_t reserved;
};

// y = gate_out * act(conv(gate_in * x) + bias) over the tokens of every sequence; gates and bias
// may be null. x and the gates: (T, channels), stride in floats. weight: (taps, channels), the
// last tap meets the current token. The cell holds (channels, taps - 1) inputs before the step.
struct RpConv {
    const float* x;
    const float* gate_in;
    const float* gate_out;
    const float* weight;
    const float* bias;
    float* out;
    RpActs* acts;
    int64_t stride;
    int64_t cell_offset;
    int32_t channels;
    int32_t taps;
    int32_t activation;
    int32_t reserved;
};

// The selective scan: state = exp(dt a) state + dt u b; y = (state c + d u) silu(z), dt after
// softplus. u, dt: (T, channels). b, c: (T, num_states), bc_stride. z: (T, channels), z_stride.
// a: (num_states, channels). The cell holds (channels, num_states).
struct RpScan {
    const float* u;
    const float* dt;
    const float* b;
    const float* c;
    const float* z;
    const float* a;
    const float* d;
    float* out;
    RpActs* acts;
    int64_t bc_stride;
    int64_t z_stride;
    int64_t cell_offset;
    int32_t channels;
    int32_t num_states;
};

// Rows of any stride, in place or not: y = (x - mean) * rsqrt(mean((x - mean)^2) + eps) * weight +
// bias, where mean is 0 unless is_centered and bias may be null. Written to out and to acts.
struct RpRowNorm {
    const float* x;
    const float* weight;
    const float* bias;
    float* out;
    RpActs* acts;
    int64_t x_stride;
    int64_t out_stride;
    int32_t width;
    int32_t is_centered;
    float eps;
    int32_t is_logit_rows;
};

// x *= 1 + growth * log(1 + position / period), the quotient a whole number.
struct RpGrow {
    float* x;
    int64_t stride;
    double growth;
    int32_t width;
    int32_t period;
};

// The output head, its matrix packed in parts (RP_Q8P); head.h tells what its operations do.
// bytes: as many as columns. scales: three for every group of columns. bounds: one for every tile of
// rows. exact: one for every piece of 64 of these. is_logit_rows must be set.
struct RpHead {
    RpLinear linear;
    int8_t* bytes;
    float* scales;
    float* bounds;
    float* threshold;
    int32_t* exact;
};

enum RpKind { RP_Q4A, RP_Q4S, RP_Q5A, RP_Q5S, RP_Q6S, RP_Q8S, RP_Q8P, RP_NUM_KINDS };
enum RpCodec { RP_F16, RP_BF16, RP_F32, RP_INT8, RP_K8V4 };
enum RpRotation { RP_ROTATED_KEYS = 1, RP_ROTATED_VALUES = 2 };
enum RpOpKind {
    RP_EMBED,
    RP_NORM,
    RP_LINEAR,
    RP_GATE,
    RP_TRIG,
    RP_ROPE,
    RP_ATTEND,
    RP_MERGE,
    RP_SELECT,
    RP_FLOAT_LINEAR,
    RP_CONV,
    RP_SCAN,
    RP_ROW_NORM,
    RP_GROW,
    RP_HEAD_PREPARE,
    RP_HEAD_SKETCH,
    RP_HEAD_FIND_SEEDS,
    RP_HEAD_SEEDS,
    RP_HEAD_FIND_SURE,
    RP_HEAD_SURE,
    RP_HEAD_WHOLE,
    RP_NUM_OPS
};

// is_tail: comes after a selection of rows.
struct RpOp {
    int32_t kind;
    int32_t is_tail;
    const void* args;
};
}
