// Products of packed weights with int16 activations, for any number of rows.
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

// Activation rows that share one pass over an unpacked tile.
constexpr int kBlock = 6;

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

// Weights as they lie in memory, or as a tile unpacked before: 16-bit quants and float scales.
template <class Q>
struct Packed {
    const uint8_t* p;
    template <int J>
    RP_INLINE_MEMBER Pair vector() const {
        return widen<Q::kIsSigned>(unpack<Q, J>(p));
    }
    RP_INLINE_MEMBER F scale(int i) const { return fload_f16(p + Layout<Q>::kQuants + 2 * R * i); }
    RP_INLINE_MEMBER void next() { p += Layout<Q>::kGroup; }
};

template <class Q>
struct Unpacked {
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

// Integer sums of one group for M rows; high: of columns 16..31 where halves are scaled apart.
template <class Q, int M>
struct GroupSums {
    I low[M], high[Q::kHasHalves ? M : 1];
};

template <class Q, int M>
RP_INLINE void begin_group(const RpActs& acts, const Rows<M>& rows, int64_t g,
                           GroupSums<Q, M>& sums) {
    each<M>([&](auto m) RP_LAMBDA {
        const int32_t* s = acts.sums + 2 * (rows.meta[m] + g);
        if constexpr (Q::kOffset == 0) {
            sums.low[m] = iset(0);
        } else if constexpr (Q::kHasHalves) {
            sums.low[m] = iset(-Q::kOffset * s[0]);
            sums.high[m] = iset(-Q::kOffset * s[1]);
        } else {
            sums.low[m] = iset(-Q::kOffset * (s[0] + s[1]));
        }
    });
}

template <class Q, int M, class Source>
RP_INLINE void multiply_group(const Source& source, const Rows<M>& rows, int64_t g,
                              GroupSums<Q, M>& sums) {
    each<8>([&](auto j) RP_LAMBDA {
        constexpr int J = j;
        const Pair w = source.template vector<J>();
        each<M>([&](auto m) RP_LAMBDA {
            const Pair a = broadcast_pair(rows.q[m] + 32 * g + 4 * J);
            if constexpr (Q::kHasHalves && J >= 4)
                sums.high[m] = dot(sums.high[m], w, a);
            else
                sums.low[m] = dot(sums.low[m], w, a);
        });
    });
}

template <class Q, int M, class Source>
RP_INLINE void add_group(const Source& source, const RpActs& acts, const Rows<M>& rows, int64_t g,
                         const GroupSums<Q, M>& sums, F (&total)[M]) {
    const F d = source.scale(0);
    const F second = Layout<Q>::kScales == 2 ? source.scale(1) : fzero();
    each<M>([&](auto m) RP_LAMBDA {
        const int64_t at = rows.meta[m] + g;
        F t = fmul(fcvt(sums.low[m]), d);
        if constexpr (Q::kHasHalves) t = ffma(fcvt(sums.high[m]), second, t);
        total[m] = ffma(t, fset(acts.d[at]), total[m]);
        if constexpr (Q::kHasMin) total[m] = ffma(second, fset(acts.ds[at]), total[m]);
    });
}

// One tile times M activation rows.
template <class Q, int M, class Source>
RP_INLINE void multiply_tile(Source source, const RpActs& acts, int64_t first, F (&total)[M]) {
    const Rows<M> rows = rows_of<M>(acts, first);
    const int64_t groups = acts.width / 32;
    each<M>([&](auto m) RP_LAMBDA { total[m] = fzero(); });
    for (int64_t g = 0; g < groups; ++g, source.next()) {
        GroupSums<Q, M> sums;
        begin_group<Q, M>(acts, rows, g, sums);
        multiply_group<Q, M>(source, rows, g, sums);
        add_group<Q, M>(source, acts, rows, g, sums, total);
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

template <class Q, int M, class Source>
static void multiply_rows(const Source& source, const RpMatrix& matrix, const RpActs& acts,
                          int64_t tile, int64_t first) {
    F sum[M];
    multiply_tile<Q, M>(source, acts, first, sum);
    each<M>([&](auto m) RP_LAMBDA { store_tile(matrix, tile, first + m, sum[m]); });
}

// All rows, in blocks of at most MAX.
template <class Q, int MAX, class Source>
static void multiply_all(const Source& source, const RpMatrix& matrix, const RpActs& acts,
                         int64_t tile, int64_t rows) {
    int64_t first = 0;
    for (; first + MAX <= rows; first += MAX)
        multiply_rows<Q, MAX>(source, matrix, acts, tile, first);
    for (; first + 2 <= rows; first += 2) multiply_rows<Q, 2>(source, matrix, acts, tile, first);
    if (first < rows) multiply_rows<Q, 1>(source, matrix, acts, tile, first);
}

template <class Q, int... J>
RP_INLINE void unpack_group(const uint8_t* p, uint8_t* out, std::integer_sequence<int, J...>) {
    (store_pair(out + 2 * J * Layout<Q>::kVector, widen<Q::kIsSigned>(unpack<Q, J>(p))), ...);
}

template <class Q>
static Unpacked<Q> unpack_tile(const uint8_t* p, int64_t groups, uint8_t* scratch) {
    uint8_t* quants = scratch;
    float* scales = reinterpret_cast<float*>(scratch + groups * 16 * Layout<Q>::kVector);
    const Unpacked<Q> result{quants, scales};
    for (int64_t g = 0; g < groups; ++g, p += Layout<Q>::kGroup) {
        unpack_group<Q>(p, quants, std::make_integer_sequence<int, 8>());
        quants += 16 * Layout<Q>::kVector;
        for (int i = 0; i < Layout<Q>::kScales; ++i, scales += R)
            fstore(scales, Packed<Q>{p}.scale(i));
    }
    return result;
}

constexpr int64_t kUnpackRows = 8;

template <class Q>
static void multiply(const RpMatrix& matrix, const RpActs& acts, int64_t tile, int64_t rows,
                     uint8_t* scratch) {
    const int64_t groups = acts.width / 32;
    const uint8_t* p = matrix.data + tile * groups * Layout<Q>::kGroup;
    if (rows < kUnpackRows)
        return multiply_all<Q, 4>(Packed<Q>{p}, matrix, acts, tile, rows);
    multiply_all<Q, kBlock>(unpack_tile<Q>(p, groups, scratch), matrix, acts, tile, rows);
}

static void multiply_kind(const RpMatrix& matrix, const RpActs& acts, int64_t tile, int64_t rows,
                          uint8_t* scratch) {
    switch (matrix.kind) {
        case RP_Q4A: return multiply<Q4A>(matrix, acts, tile, rows, scratch);
        case RP_Q4S: return multiply<Q4S>(matrix, acts, tile, rows, scratch);
        case RP_Q5A: return multiply<Q5A>(matrix, acts, tile, rows, scratch);
        case RP_Q5S: return multiply<Q5S>(matrix, acts, tile, rows, scratch);
        case RP_Q6S: return multiply<Q6S>(matrix, acts, tile, rows, scratch);
        default: return multiply<Q8S>(matrix, acts, tile, rows, scratch);
    }
}

// Tile number `tile` of all matrices laid end to end.
RP_INLINE void linear_tile(const RpLinear& args, int64_t tile, int64_t rows, uint8_t* scratch) {
    for (int32_t i = 0; i < args.num_matrices; ++i) {
        const int64_t tiles = (args.matrices[i].num_rows + R - 1) / R;
        if (tile < tiles) return multiply_kind(args.matrices[i], *args.acts, tile, rows, scratch);
        tile -= tiles;
    }
}

RP_INLINE int64_t num_tiles(const RpLinear& args) {
    int64_t total = 0;
    for (int32_t i = 0; i < args.num_matrices; ++i)
        total += (args.matrices[i].num_rows + R - 1) / R;
    return total;
}

// Neighbouring tiles that one thread takes at once.
RP_INLINE int64_t tiles_per_piece(const RpLinear& args, const rp::Worker& worker) {
    const int64_t fair = num_tiles(args) / (8 * worker.num_threads);
    return fair < 1 ? 1 : fair > 64 ? 64 : fair;
}

static int64_t count_linear(const void* pointer, const rp::Worker& worker) {
    const RpLinear& args = *static_cast<const RpLinear*>(pointer);
    if (args.is_logit_rows && worker.step->num_logit_rows == 0) return 0;
    const int64_t size = tiles_per_piece(args, worker);
    return (num_tiles(args) + size - 1) / size;
}

static void linear(const void* pointer, const rp::Worker& worker, int64_t piece) {
    const RpLinear& args = *static_cast<const RpLinear*>(pointer);
    const RpStep& step = *worker.step;
    const int64_t rows = args.is_logit_rows ? step.num_logit_rows : step.num_rows;
    const int64_t total = num_tiles(args), size = tiles_per_piece(args, worker);
    for (int64_t tile = piece * size; tile < (piece + 1) * size && tile < total; ++tile)
        linear_tile(args, tile, rows, worker.scratch);
}

}  // namespace RP_NS
