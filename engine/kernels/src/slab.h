// Keys and values inside block slabs, and the number formats they are held in.
#pragma once

namespace RP_NS {

struct CodecF16 {
    static constexpr int kBytes = 2;
    static RP_INLINE_MEMBER F load(const uint8_t* row, int i) { return fload_f16(row + 2 * i); }
    static RP_INLINE_MEMBER void store(uint8_t* row, int i, F v) { fstore_f16(row + 2 * i, v); }
};

struct CodecBF16 {
    static constexpr int kBytes = 2;
    static RP_INLINE_MEMBER F load(const uint8_t* row, int i) { return fload_bf16(row + 2 * i); }
    static RP_INLINE_MEMBER void store(uint8_t* row, int i, F v) {
        float values[R];
        fstore(values, v);
        for (int j = 0; j < R; ++j) store_bf16(row + 2 * (i + j), values[j]);
    }
};

struct CodecF32 {
    static constexpr int kBytes = 4;
    static RP_INLINE_MEMBER F load(const uint8_t* row, int i) {
        float values[R];
        std::memcpy(values, row + 4 * i, sizeof values);
        return fload(values);
    }
    static RP_INLINE_MEMBER void store(uint8_t* row, int i, F v) {
        float values[R];
        fstore(values, v);
        std::memcpy(row + 4 * i, values, sizeof values);
    }
};

RP_INLINE const RpSlice& slice_of(const RpStep& step, int group, int64_t row) {
    const RpSlice* slice = step.slices[group];
    while (row >= slice->end) ++slice;
    return *slice;
}

// Where a row of the batch stands among the tokens of its sequence's blocks.
RP_INLINE int64_t place_of(const RpStep& step, const RpSlab& slab, int64_t row) {
    const RpSlice& slice = slice_of(step, slab.group, row);
    return slice.first_place + row - slice.start;
}

// One numeric row of a quantised plane; scales lie apart.
struct CodecS8 {
    static constexpr int kBytes = 1;
    static RP_INLINE_MEMBER F load(const uint8_t* row, int i) { return fload_s8(row + i); }
};

// The key of a token for one key/value head; its value lies value_distance bytes further.
RP_INLINE uint8_t* key_row(const RpSlab& slab, uint8_t* const* blocks, int64_t token, int head,
                           int64_t row_size) {
    return blocks[token / slab.block_size] + slab.key_offset + head * slab.head_stride +
           token % slab.block_size * row_size;
}

RP_INLINE int64_t value_distance(const RpSlab& slab) {
    return slab.value_offset - slab.key_offset;
}

constexpr int kNibbleGroup = 32;  // neighbours that share a scale where values have 4 bits

// A run of tokens of one key/value head inside a quantised block.
struct PackedRun {
    const uint8_t* keys;          // (tokens, D)
    const uint8_t* values;        // (tokens, D), or half of that where they have 4 bits
    const uint8_t* key_scales;    // (tokens)
    const uint8_t* value_scales;  // (tokens), or (tokens, D / 32)
};

RP_INLINE bool is_packed(const RpSlab& slab, const uint8_t* packed_blocks, int64_t token) {
    return packed_blocks && packed_blocks[token / slab.block_size];
}

RP_INLINE PackedRun packed_run(const RpSlab& slab, uint8_t* const* blocks, int64_t token, int head,
                               int size) {
    const RpPackedSlab& packed = *slab.packed;
    const uint8_t* block = blocks[token / slab.block_size];
    const int64_t row = static_cast<int64_t>(head) * slab.block_size + token % slab.block_size;
    const bool has_nibbles = packed.codec == RP_K8V4;
    const int64_t width = has_nibbles ? size / 2 : size;
    const int64_t scales = has_nibbles ? size / kNibbleGroup : 1;
    return {block + packed.key_offset + row * size, block + packed.value_offset + row * width,
            block + packed.key_scale_offset + row * 2,
            block + packed.value_scale_offset + row * scales * 2};
}

}  // namespace RP_NS
