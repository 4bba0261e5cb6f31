// Products of packed weights with many rows of activations, for reading, in fixed point: over a span
// of columns a row of the matrix has one scale, and so has a row of activations. Nothing has to be
// done between two products then but to add them, as int32. No sum overflows:
// 32 * kMostSpanGroups * kLargestAct * (kLargestQuant + 1) < 2^31, 1 being for what is rounded twice.
#pragma once

namespace RP_NS {

constexpr float kLargestQuant = 2047.0f;
static_assert(kTiles * R == kLanes, "the tiles of a panel are the lanes of a dense product");

// The largest weights that a group can hold, by its scales.
template <class Q>
RP_INLINE F largest_weights(const Packed<Q>& source) {
    const F d = source.scale(0);
    if constexpr (Q::kHasMin) {
        const F least = source.scale(1);
        const F most = ffma(d, fset((1 << Q::kBits) - 1), least);
        return fmaxv(fabsv(least), fabsv(most));
    }
    const F reach = fset(Q::kIsSigned ? 128 : Q::kOffset);
    if constexpr (Q::kHasHalves) return fmul(fmaxv(fabsv(d), fabsv(source.scale(1))), reach);
    return fmul(fabsv(d), reach);
}

// One whole number for both int16 of every pair of lanes.
RP_INLINE H both(F v) {
    int16_t pairs[2 * R];
    hstore(pairs, v, v);
    return hload(pairs);
}

// Vector J of a group as two rows of pairs: round(w * scale / 2^kBits) + least, w without offset.
template <class Q, int J>
RP_INLINE void rescale_vector(const uint8_t* p, H scale, H least, int16_t* out) {
    constexpr int kShift = Q::kIsSigned ? 8 : 15 - Q::kBits;
    const Pair w = minus<Q::kOffset>(widen<Q::kIsSigned>(unpack<Q, J>(p)));
    const H even = hscale<kShift>(w.even, scale), odd = hscale<kShift>(w.odd, scale);
    hstore(out, Q::kHasMin ? hadd(even, least) : even);
    hstore(out + 2 * kLanes, Q::kHasMin ? hadd(odd, least) : odd);
}

// inverse: of the units. out: 16 rows of pairs. A least weight makes good what rounding its scale
// does to the weights in the middle.
template <class Q>
RP_INLINE void rescale_group(const Packed<Q>& source, F inverse, int16_t* out) {
    constexpr float kOne = Q::kIsSigned ? 128 : 1 << Q::kBits;
    const F exact = fmul(fmul(source.scale(0), inverse), fset(kOne)), d = fround(exact);
    const H scale = both(d);
    H second = scale, least = scale;
    if constexpr (Q::kHasHalves) second = both(fmul(fmul(source.scale(1), inverse), fset(kOne)));
    if constexpr (Q::kHasMin)
        least = both(ffma(fsub(exact, d), fset(0.5f), fmul(source.scale(1), inverse)));
    each<8>([&](auto j) RP_LAMBDA {
        rescale_vector<Q, j>(source.p, j < 4 ? scale : second, least, out + 4 * j * kLanes);
    });
}

// One tile of a panel, (16 * groups, kLanes) pairs. Return the units of its rows. ahead: bytes to
// where the same tile of the next panel lies.
template <class Q>
RP_INLINE F unpack_span(const uint8_t* p, int64_t groups, int64_t ahead, int16_t* panel) {
    F largest = fzero();
    for (int64_t g = 0; g < groups; ++g) {
        largest = fmaxv(largest, largest_weights(Packed<Q>{p + g * Layout<Q>::kGroup}));
        prefetch_once(p + g * Layout<Q>::kGroup + ahead, Layout<Q>::kGroup);
    }
    const F inverse = fselect_gt(largest, fzero(), fdiv(fset(kLargestQuant), largest), fzero());
    for (int64_t g = 0; g < groups; ++g)
        rescale_group(Packed<Q>{p + g * Layout<Q>::kGroup}, inverse, panel + 32 * g * kLanes);
    return fmul(largest, fset(1.0f / kLargestQuant));
}

// Neighbouring tiles, unpacked; missing ones are 0.
struct Panel {
    int16_t* weights;  // (columns / 2, kLanes) pairs
    float* units;      // (spans, kLanes)
    int64_t tile;
    int count;      // of tiles
    bool is_plain;  // whole, and without a bias
};

// ROWS rows of activations times one panel.
template <int ROWS>
static RP_NOINLINE void read_rows(const RpMatrix& matrix, const RpActs& acts, const Panel& panel,
                                  int64_t row) {
    const int64_t width = acts.width, groups = width / 32;
    F total[kTiles * ROWS];
    each<kTiles * ROWS>([&](auto j) RP_LAMBDA { total[j] = fzero(); });
    const int64_t span = 32 * span_groups(acts.width);
    const float* units = panel.units;
    for (int64_t first = 0; first < width; first += span, units += kLanes) {
        const int64_t n = width - first < span ? width - first : span;
        S sum[kTiles * ROWS];
        dense<ROWS, kTiles>({acts.q + row * width + first, width, 2}, panel.weights + first * kLanes,
                    static_cast<int>(n / 2), sum);
        const float* d = acts.d + row * groups + first / 32;
        each<ROWS>([&](auto r) RP_LAMBDA {
            const F scale = fset(d[r * groups]);
            each<kTiles>([&](auto i) RP_LAMBDA {
                constexpr int J = kTiles * r + i;
                const F t = fmul(fload(units + R * i), scale);
                total[J] = ffma(fcvt(stotal(sum[J])), t, total[J]);
            });
        });
    }
    if (panel.is_plain) {
        float* out = matrix.out + row * matrix.out_stride + panel.tile * R;
        each<kTiles * ROWS>([&](auto j) RP_LAMBDA {
            float* p = out + j / kTiles * matrix.out_stride + j % kTiles * R;
            fstore(p, matrix.is_added ? fadd(fload(p), total[j]) : total[j]);
        });
        return;
    }
    for (int j = 0; j < kTiles * ROWS; ++j)
        if (j % kTiles < panel.count)
            store_tile(matrix, panel.tile + j % kTiles, row + j / kTiles, total[j]);
}

template <class Q>
static Panel unpack_panel(const RpMatrix& matrix, int width, int64_t tile, int count,
                          uint8_t* scratch) {
    const int64_t groups = width / 32, size = span_groups(width);
    const int64_t panel_bytes = static_cast<int64_t>(sizeof(int16_t)) * width * kLanes;
    const Panel panel{reinterpret_cast<int16_t*>(scratch),
                      reinterpret_cast<float*>(scratch + panel_bytes), tile, count,
                      !matrix.bias && count == kTiles && (tile + kTiles) * R <= matrix.num_rows};
    if (count < kTiles) std::memset(scratch, 0, static_cast<size_t>(panel_bytes));
    for (int i = 0; i < count; ++i) {
        const uint8_t* p = matrix.data + (tile + i) * groups * Layout<Q>::kGroup;
        float* units = panel.units + R * i;
        for (int64_t g = 0; g < groups; g += size, units += kLanes) {
            const int64_t n = groups - g < size ? groups - g : size;
            fstore(units, unpack_span<Q>(p + g * Layout<Q>::kGroup, n, kTiles * groups * Layout<Q>::kGroup,
                                         panel.weights + 32 * g * kLanes + 2 * R * i));
        }
    }
    return panel;
}

template <class Q>
static void read_tiles(const RpMatrix& matrix, const RpActs& acts, int64_t tile, int count,
                       int64_t rows, uint8_t* scratch) {
    const Panel panel = unpack_panel<Q>(matrix, acts.width, tile, count, scratch);
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) read_rows<4>(matrix, acts, panel, row);
    for (; row + 2 <= rows; row += 2) read_rows<2>(matrix, acts, panel, row);
    if (row < rows) read_rows<1>(matrix, acts, panel, row);
}

template <class Q>
static void read(const RpMatrix& matrix, const RpActs& acts, int64_t tile, int64_t end,
                 int64_t rows, uint8_t* scratch) {
    for (; tile < end; tile += kTiles) {
        const int count = static_cast<int>(end - tile < kTiles ? end - tile : kTiles);
        read_tiles<Q>(matrix, acts, tile, count, rows, scratch);
    }
}

static void read_kind(const RpMatrix& matrix, const RpActs& acts, int64_t tile, int64_t end,
                      int64_t rows, uint8_t* scratch) {
    switch (matrix.kind) {
        case RP_Q4A: return read<Q4A>(matrix, acts, tile, end, rows, scratch);
        case RP_Q4S: return read<Q4S>(matrix, acts, tile, end, rows, scratch);
        case RP_Q5A: return read<Q5A>(matrix, acts, tile, end, rows, scratch);
        case RP_Q5S: return read<Q5S>(matrix, acts, tile, end, rows, scratch);
        case RP_Q6S: return read<Q6S>(matrix, acts, tile, end, rows, scratch);
        default: return read<Q8S>(matrix, acts, tile, end, rows, scratch);
    }
}

}  // namespace RP_NS
