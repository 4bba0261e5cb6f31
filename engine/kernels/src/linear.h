// Products of packed weights with int16 activations, with the precision of the file.
// The order of the float operations does not depend on the number of rows or threads.
#pragma once

namespace RP_NS {

// kOffset: what an unsigned quant is above its value.
struct Q4A {
    static constexpr int kBits = 4, kOffset = 0;
    static constexpr bool kHasMin = true, kHasHalves = false, kIsSigned = false;
};
struct Q4S {
    static constexpr int kBits = 4, kOffset = 8;
    static constexpr bool kHasMin = false, kHasHalves = false, kIsSigned = false;
};
struct Q5A {
    static constexpr int kBits = 5, kOffset = 0;
    static constexpr bool kHasMin = true, kHasHalves = false, kIsSigned = false;
};
struct Q5S {
    static constexpr int kBits = 5, kOffset = 16;
    static constexpr bool kHasMin = false, kHasHalves = false, kIsSigned = false;
};
struct Q6S {
    static constexpr int kBits = 6, kOffset = 32;
    static constexpr bool kHasMin = false, kHasHalves = true, kIsSigned = false;
};
struct Q8S {
    static constexpr int kBits = 8, kOffset = 0;
    static constexpr bool kHasMin = false, kHasHalves = false, kIsSigned = true;
};
struct Q8P {  // Q8S, the bits of a byte in several places
    static constexpr int kBits = 8, kOffset = 128;
    static constexpr bool kHasMin = false, kHasHalves = false, kIsSigned = false;
};

// Activation rows and neighbouring unpacked tiles that are multiplied at once: as many sums as
// stay in registers, and every activation is loaded once for all the tiles.
constexpr int kBlock = 3;
constexpr int kTiles = 3;

template <class Q>
struct Layout {
    static constexpr int kVector = 4 * R;
    static constexpr int kPlanes = Q::kBits == 8 ? 0 : Q::kBits - 4;
    static constexpr int kQuants = (Q::kBits == 8 ? 8 : 4 + kPlanes) * kVector;
    static constexpr int kScales = Q::kHasMin || Q::kHasHalves ? 2 : 1;
    static constexpr int kGroup = kQuants + kScales * 2 * R;
};

// Vector J of a packed group as bytes.
template <class Q, int J>
RP_INLINE W unpack(const uint8_t* p) {
    constexpr int kVector = Layout<Q>::kVector;
    if constexpr (Q::kBits == 8) {
        return wload(p + J * kVector);
    } else {
        const W pair = wload(p + J % 4 * kVector);
        const W low = J < 4 ? wlow(pair) : whigh(pair);
        if constexpr (Q::kBits == 4) return low;
        if constexpr (Q::kBits == 5) return wor(low, wplane<J>(wload(p + 4 * kVector), 0x10));
        if constexpr (Q::kBits == 6)
            return wor(low, wplane<2 * (J % 4)>(wload(p + (4 + J / 4) * kVector), 0x30));
    }
}

// How far ahead of the multiplication weights are fetched: what memory delivers in its latency.
constexpr int kAhead = 2048;

// Weights as they lie in memory, or as a tile unpacked before: 16-bit quants, their offset taken
// off, and float scales. kOffset: what the quants are above their values.
template <class Q>
struct Packed {
    static constexpr int kOffset = Q::kOffset;
    const uint8_t* p;
    template <int J>
    RP_INLINE_MEMBER Pair vector() const {
        return widen<Q::kIsSigned>(unpack<Q, J>(p));
    }
    RP_INLINE_MEMBER F scale(int i) const { return fload_f16(p + Layout<Q>::kQuants + 2 * R * i); }
    RP_INLINE_MEMBER void next() {
        prefetch_once(p + kAhead, Layout<Q>::kGroup);
        p += Layout<Q>::kGroup;
    }
};

// The same where neighbouring tiles are multiplied at once: what follows each is in another place.
template <class Q>
struct PackedBeside : Packed<Q> {
    int64_t ahead;
    RP_INLINE_MEMBER void next() {
        prefetch_once(this->p + ahead, Layout<Q>::kGroup);
        this->p += Layout<Q>::kGroup;
    }
};

template <>
struct Packed<Q8P> : Parts {
    static constexpr int kOffset = Q8P::kOffset;
    template <int J>
    RP_INLINE_MEMBER Pair vector() const {
        const W nibbles = wload(low + J % 4 * kVector);
        const W top = wplane<-1>(high_bits<J>(high), static_cast<char>(0xe0));
        const W rest = wor(wplane<J>(wload(middle), 0x10), J < 4 ? wlow(nibbles) : whigh(nibbles));
        return widen<false>(wor(top, rest));
    }
    RP_INLINE_MEMBER F scale(int) const { return fload_f16(scales); }
    RP_INLINE_MEMBER void next() {
        prefetch_once(high + kAhead, 3 * kVector);
        prefetch_once(middle + kAhead, kVector);
        prefetch_once(low + kAhead, 4 * kVector);
        high += 3 * kVector;
        scales += 2 * R;
        middle += kVector;
        low += 4 * kVector;
    }
};

template <class Q>
RP_INLINE Packed<Q> packed_tile(const RpMatrix& matrix, int64_t groups, int64_t tile) {
    if constexpr (std::is_same_v<Q, Q8P>)
        return {Parts::of(matrix, groups, tile)};
    else
        return {matrix.data + tile * groups * Layout<Q>::kGroup};
}

template <class Q>
struct Unpacked {
    static constexpr int kOffset = 0;
    const uint8_t* p;
    const float* scales;
    template <int J>
    RP_INLINE_MEMBER Pair vector() const {
        return load_pair(p + 2 * J * Layout<Q>::kVector);
    }
    RP_INLINE_MEMBER F scale(int i) const { return fload(scales + R * i); }
    RP_INLINE_MEMBER void next() {
        p += 16 * Layout<Q>::kVector;
        scales += Layout<Q>::kScales * R;
    }
};

// Activation rows of one block.
template <int M>
struct Rows {
    const int16_t* q[M];
    int64_t meta[M];  // index of the first group
};

template <int M>
RP_INLINE Rows<M> rows_of(const RpActs& acts, int64_t first) {
    Rows<M> rows;
    each<M>([&](auto m) RP_LAMBDA {
        rows.q[m] = acts.q + (first + m) * acts.width;
        rows.meta[m] = (first + m) * (acts.width / 32);
    });
    return rows;
}

// Integer sums of one group for M rows of N tiles, row by row; high: of columns 16..31 where
// halves are scaled apart.
template <class Q, int M, int N>
struct GroupSums {
    I low[M * N], high[Q::kHasHalves ? M * N : 1];
};

template <class Q, int M, int N, class Source>
RP_INLINE void begin_group(const Source (&)[N], const RpActs& acts, const Rows<M>& rows, int64_t g,
                           GroupSums<Q, M, N>& sums) {
    constexpr int kOffset = Source::kOffset;
    each<M * N>([&](auto i) RP_LAMBDA {
        const int32_t* s = acts.sums + 2 * (rows.meta[i / N] + g);
        if constexpr (Q::kHasHalves) {
            sums.low[i] = iset(kOffset ? -kOffset * s[0] : 0);
            sums.high[i] = iset(kOffset ? -kOffset * s[1] : 0);
        } else {
            sums.low[i] = iset(kOffset ? -kOffset * (s[0] + s[1]) : 0);
        }
    });
}

template <class Q, int M, int N, class Source>
RP_INLINE void multiply_group(const Source (&source)[N], const Rows<M>& rows, int64_t g,
                              GroupSums<Q, M, N>& sums) {
    each<8>([&](auto j) RP_LAMBDA {
        constexpr int J = j;
        Pair w[N];
        each<N>([&](auto n) RP_LAMBDA { w[n] = source[n].template vector<J>(); });
        each<M>([&](auto m) RP_LAMBDA {
            const Pair a = broadcast_pair(rows.q[m] + 32 * g + 4 * J);
            each<N>([&](auto n) RP_LAMBDA {
                constexpr int i = m * N + n;
                if constexpr (Q::kHasHalves && J >= 4)
                    sums.high[i] = dot(sums.high[i], w[n], a);
                else
                    sums.low[i] = dot(sums.low[i], w[n], a);
            });
        });
    });
}

template <class Q, int M, int N, class Source>
RP_INLINE void add_group(const Source (&source)[N], const RpActs& acts, const Rows<M>& rows,
                         int64_t g, const GroupSums<Q, M, N>& sums, F (&total)[M * N]) {
    each<N>([&](auto n) RP_LAMBDA {
        const F d = source[n].scale(0);
        const F second = Layout<Q>::kScales == 2 ? source[n].scale(1) : fzero();
        each<M>([&](auto m) RP_LAMBDA {
            constexpr int i = m * N + n;
            const int64_t at = rows.meta[m] + g;
            F t = fmul(fcvt(sums.low[i]), d);
            if constexpr (Q::kHasHalves) t = ffma(fcvt(sums.high[i]), second, t);
            total[i] = ffma(t, fset(acts.d[at]), total[i]);
            if constexpr (Q::kHasMin) total[i] = ffma(second, fset(acts.ds[at]), total[i]);
        });
    });
}

// N tiles times M activation rows.
template <class Q, int M, int N, class Source>
RP_INLINE void multiply_tiles(Source (&source)[N], const RpActs& acts, int64_t first,
                              F (&total)[M * N]) {
    const Rows<M> rows = rows_of<M>(acts, first);
    const int64_t groups = acts.width / 32;
    each<M * N>([&](auto i) RP_LAMBDA { total[i] = fzero(); });
    for (int64_t g = 0; g < groups; ++g) {
        GroupSums<Q, M, N> sums;
        begin_group<Q, M, N>(source, acts, rows, g, sums);
        multiply_group<Q, M, N>(source, rows, g, sums);
        add_group<Q, M, N>(source, acts, rows, g, sums, total);
        each<N>([&](auto n) RP_LAMBDA { source[n].next(); });
    }
}

// Write one row of a tile; the last tile of a matrix may be narrower than a vector.
RP_INLINE void store_tile(const RpMatrix& matrix, int64_t tile, int64_t row, F sum) {
    const int64_t column = tile * R;
    float* out = matrix.out + row * matrix.out_stride + column;
    const int64_t left = matrix.num_rows - column;
    if (left >= R) {
        if (matrix.bias) sum = fadd(sum, fload(matrix.bias + column));
        fstore(out, matrix.is_added ? fadd(fload(out), sum) : sum);
        return;
    }
    float values[R];
    fstore(values, sum);
    for (int64_t i = 0; i < left; ++i) {
        if (matrix.bias) values[i] += matrix.bias[column + i];
        out[i] = matrix.is_added ? out[i] + values[i] : values[i];
    }
}

template <class Q, int M, int N, class Source>
static void multiply_rows(const Source (&sources)[N], const RpMatrix& matrix, const RpActs& acts,
                          int64_t tile, int64_t first) {
    Source source[N];
    each<N>([&](auto n) RP_LAMBDA { source[n] = sources[n]; });
    F sum[M * N];
    multiply_tiles<Q, M, N>(source, acts, first, sum);
    each<M * N>(
        [&](auto i) RP_LAMBDA { store_tile(matrix, tile + i % N, first + i / N, sum[i]); });
}

// All rows, in blocks of kBlock.
template <class Q, int N, class Source>
static void multiply_all(const Source (&sources)[N], const RpMatrix& matrix, const RpActs& acts,
                         int64_t tile, int64_t rows) {
    static_assert(kBlock == 3, "the last four rows are two and two rather than three and one");
    int64_t first = 0;
    for (; first + kBlock <= rows && first + 4 != rows; first += kBlock)
        multiply_rows<Q, kBlock>(sources, matrix, acts, tile, first);
    for (; first + 2 <= rows; first += 2) multiply_rows<Q, 2>(sources, matrix, acts, tile, first);
    if (first < rows) multiply_rows<Q, 1>(sources, matrix, acts, tile, first);
}

template <class Q, int... J>
RP_INLINE void unpack_group(const Packed<Q>& source, uint8_t* out,
                            std::integer_sequence<int, J...>) {
    (store_pair(out + 2 * J * Layout<Q>::kVector, minus<Q::kOffset>(source.template vector<J>())),
     ...);
}

// Bytes of one unpacked tile.
template <class Q>
constexpr int64_t unpacked_bytes(int64_t groups) {
    return groups * (16 * Layout<Q>::kVector + Layout<Q>::kScales * R * sizeof(float));
}

template <class Q>
static Unpacked<Q> unpack_tile(Packed<Q> source, int64_t groups, uint8_t* scratch) {
    uint8_t* quants = scratch;
    float* scales = reinterpret_cast<float*>(scratch + groups * 16 * Layout<Q>::kVector);
    const Unpacked<Q> result{quants, scales};
    for (; groups > 0; --groups, source.next()) {
        unpack_group<Q>(source, quants, std::make_integer_sequence<int, 8>());
        quants += 16 * Layout<Q>::kVector;
        for (int i = 0; i < Layout<Q>::kScales; ++i, scales += R) fstore(scales, source.scale(i));
    }
    return result;
}

// Fewer rows than this do not pay for writing the unpacked weights down: they are unpacked in
// registers, for kBatchRows rows at a time.
constexpr int64_t kUnpackRows = 25;
constexpr int kBatchRows = 4;

// Rows from first on, in blocks of M, then of half as many.
template <class Q, int M, int N, class Source>
static void multiply_blocks(const Source (&sources)[N], const RpMatrix& matrix, const RpActs& acts,
                            int64_t tile, int64_t first, int64_t rows) {
    for (; first + M <= rows; first += M) multiply_rows<Q, M>(sources, matrix, acts, tile, first);
    if constexpr (M > 1) multiply_blocks<Q, M / 2>(sources, matrix, acts, tile, first, rows);
}

// Two neighbouring tiles: every activation is loaded once for both.
template <class Q>
static void multiply_two(const RpMatrix& matrix, const RpActs& acts, int64_t tile, int64_t rows) {
    const int64_t tile_bytes = acts.width / 32 * Layout<Q>::kGroup;
    PackedBeside<Q> sources[2];
    each<2>([&](auto n) RP_LAMBDA {
        sources[n].p = matrix.data + (tile + n) * tile_bytes;
        sources[n].ahead = 2 * tile_bytes;
    });
    multiply_blocks<Q, kBatchRows>(sources, matrix, acts, tile, 0, rows);
}

template <class Q, int N>
static void multiply_unpacked(const RpMatrix& matrix, const RpActs& acts, int64_t tile,
                              int64_t rows, uint8_t* scratch) {
    const int64_t groups = acts.width / 32;
    Unpacked<Q> sources[N];
    each<N>([&](auto n) RP_LAMBDA {
        sources[n] = unpack_tile<Q>(packed_tile<Q>(matrix, groups, tile + n), groups,
                                    scratch + n * unpacked_bytes<Q>(groups));
    });
    multiply_all<Q>(sources, matrix, acts, tile, rows);
}

// Neighbouring tiles of one matrix.
template <class Q>
static void multiply(const RpMatrix& matrix, const RpActs& acts, int64_t tile, int64_t end,
                     int64_t rows, uint8_t* scratch) {
    if (rows >= kUnpackRows) {
        for (; tile + kTiles <= end; tile += kTiles)
            multiply_unpacked<Q, kTiles>(matrix, acts, tile, rows, scratch);
        for (; tile < end; ++tile) multiply_unpacked<Q, 1>(matrix, acts, tile, rows, scratch);
        return;
    }
    constexpr bool kIsWide = Q::kBits == 8;  // two tiles would not stay in registers
    if constexpr (!kIsWide) {
        const int64_t tile_bytes = acts.width / 32 * Layout<Q>::kGroup;
        if (rows >= kBatchRows) prefetch_once(matrix.data + tile * tile_bytes, 2 * tile_bytes);
        for (; rows >= kBatchRows && tile + 2 <= end; tile += 2)
            multiply_two<Q>(matrix, acts, tile, rows);
    }
    for (; tile < end; ++tile) {
        const Packed<Q> source[1] = {packed_tile<Q>(matrix, acts.width / 32, tile)};
        multiply_blocks<Q, kIsWide ? 2 * kBatchRows : kBatchRows>(source, matrix, acts, tile, 0,
                                                                  rows);
    }
}

static void multiply_kind(const RpMatrix& matrix, const RpActs& acts, int64_t tile, int64_t end,
                          int64_t rows, uint8_t* scratch) {
    switch (matrix.kind) {
        case RP_Q4A: return multiply<Q4A>(matrix, acts, tile, end, rows, scratch);
        case RP_Q4S: return multiply<Q4S>(matrix, acts, tile, end, rows, scratch);
        case RP_Q5A: return multiply<Q5A>(matrix, acts, tile, end, rows, scratch);
        case RP_Q5S: return multiply<Q5S>(matrix, acts, tile, end, rows, scratch);
        case RP_Q6S: return multiply<Q6S>(matrix, acts, tile, end, rows, scratch);
        case RP_Q8P: return multiply<Q8P>(matrix, acts, tile, end, rows, scratch);
        default: return multiply<Q8S>(matrix, acts, tile, end, rows, scratch);
    }
}

}  // namespace RP_NS
