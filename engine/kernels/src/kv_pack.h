// Float16 rows to whole numbers with float16 scales: what engine/memory/quantize.py computes, bit by
// bit, so that a block has the same bytes whoever packed it.
#pragma once

namespace RP_NS {

// The smallest normal float16.
constexpr float kMinScale = 6.103515625e-5f;

// Write the scale that brings n numbers into -largest..largest; return it as it was rounded.
RP_INLINE float write_scale(const uint8_t* numbers, int n, float largest, uint8_t* scale) {
    F top = fzero();
    for (int i = 0; i < n; i += R) top = fmaxv(top, fabsv(fload_f16(numbers + 2 * i)));
    const float exact = fmaxh(top) / largest;
    store_f16(scale, exact > kMinScale ? exact : kMinScale);
    return load_f16(scale);
}

RP_INLINE F whole_numbers(const uint8_t* numbers, float scale, float largest) {
    const F x = fround(fdiv(fload_f16(numbers), fset(scale)));
    return fmaxv(fminv(x, fset(largest)), fset(-largest));
}

RP_INLINE void pack_s8(const uint8_t* numbers, int size, uint8_t* out, uint8_t* scale) {
    const float d = write_scale(numbers, size, 127.0f, scale);
    for (int i = 0; i < size; i += R) fstore_s8(out + i, whole_numbers(numbers + 2 * i, d, 127.0f));
}

// One group: the first half of its numbers in the low nibbles, with 8 added.
RP_INLINE void pack_u4(const uint8_t* numbers, uint8_t* out, uint8_t* scale) {
    constexpr int kHalf = kNibbleGroup / 2;
    const float d = write_scale(numbers, kNibbleGroup, 7.0f, scale);
    for (int i = 0; i < kHalf; i += R) {
        const F low = whole_numbers(numbers + 2 * i, d, 7.0f);
        const F high = whole_numbers(numbers + 2 * (i + kHalf), d, 7.0f);
        // As a signed byte, low + 8 + 16 * (high + 8) is 256 less from 128 on.
        const F byte = ffma(high, fset(16.0f), fadd(low, fset(136.0f)));
        fstore_s8(out + i, fselect_gt(byte, fset(127.0f), fsub(byte, fset(256.0f)), byte));
    }
}

static void pack_plane(const RpPlanePack& args) {
    const int groups = args.has_nibbles ? args.width / kNibbleGroup : 1;
    const int64_t out_bytes = args.has_nibbles ? args.width / 2 : args.width;
    for (int64_t at = 0; at < int64_t{args.num_layers} * args.num_rows; ++at) {
        const int64_t layer = at / args.num_rows, row = at % args.num_rows;
        const uint8_t* numbers = args.numbers + layer * args.numbers_stride + row * args.width * 2;
        uint8_t* out = args.out + layer * args.out_stride + row * out_bytes;
        uint8_t* scales = args.scales + layer * args.scales_stride + row * groups * 2;
        if (!args.has_nibbles) {
            pack_s8(numbers, args.width, out, scales);
            continue;
        }
        for (int g = 0; g < groups; ++g)
            pack_u4(numbers + g * kNibbleGroup * 2, out + g * kNibbleGroup / 2, scales + 2 * g);
    }
}

}  // namespace RP_NS
