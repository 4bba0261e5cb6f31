// Embedding rows, norms, gated activations and the int16 quantisation of activations.
#pragma once

namespace RP_NS {

constexpr float kLargestInt16 = 32767.0f;

// While rows are read, columns have one scale in spans of this many groups at most; the largest
// number then.
constexpr int kMostSpanGroups = 6;
constexpr float kLargestAct = 5459.0f;

// Groups of a span: as even as they go, the last one may have fewer.
RP_INLINE int span_groups(int width) {
    const int groups = width / 32, spans = (groups + kMostSpanGroups - 1) / kMostSpanGroups;
    return (groups + spans - 1) / spans;
}

// Whether so many rows are read in fixed point.
RP_INLINE bool is_reading(const rp::Worker& worker, int64_t rows) {
    return worker.is_reading && rows >= rp::kDenseRows;
}

RP_INLINE float largest_of(const float* x, int n) {
    F largest = fzero();
    for (int i = 0; i < n; i += R) largest = fmaxv(largest, fabsv(fload(x + i)));
    return fmaxh(largest);
}

// 0 for what is too large or not a number, whose conversion is undefined.
RP_INLINE int32_t whole(float x) {
    return std::fabs(x) < 2147483648.0f ? static_cast<int32_t>(x) : 0;
}

// Half a group: q = round(x * inverse). Return the sum of q.
RP_INLINE int32_t quantize_half(const float* x, float inverse, int16_t* q) {
    F sum = fzero();
    for (int i = 0; i < 16; i += R) {
        const F v = fround(fmul(fload(x + i), fset(inverse)));
        fstore_swapped(q + i, v);
        sum = fadd(sum, v);
    }
    return whole(fsum(sum));
}

// One group of 32: q = round(x / d), d = top / limit, where top >= max|x|.
RP_INLINE void quantize_group(const float* x, const RpActs& acts, int64_t row, int group, float top,
                              float limit) {
    const float d = top / limit, inverse = top > 0.0f ? limit / top : 0.0f;
    int16_t* q = acts.q + row * acts.width + 32 * group;
    const int32_t low = quantize_half(x, inverse, q), high = quantize_half(x + 16, inverse, q + 16);
    const int64_t at = row * (acts.width / 32) + group;
    acts.d[at] = d;
    acts.ds[at] = d * static_cast<float>(low + high);
    acts.sums[2 * at] = low;
    acts.sums[2 * at + 1] = high;
}

// Groups first..last-1 of a row, x being the first one's: whole spans where rows are read. Eight
// bits would change one greedy token in thirty.
RP_INLINE void quantize_groups(const float* x, const RpActs& acts, int64_t row, int first, int last,
                               bool is_reading) {
    const bool has_spans = acts.has_spans && is_reading;
    const int size = has_spans ? span_groups(acts.width) : 1;
    const float limit = has_spans ? kLargestAct : kLargestInt16;
    for (int span = first; span < last; span += size) {
        const int end = span + size < last ? span + size : last;
        const float top = largest_of(x, 32 * (end - span));
        for (int g = span; g < end; ++g, x += 32) quantize_group(x, acts, row, g, top, limit);
    }
}

RP_INLINE void quantize_row(const float* x, const RpActs& acts, int64_t row, bool is_reading) {
    quantize_groups(x, acts, row, 0, acts.width / 32, is_reading);
}

static int64_t count_rows(const void*, const rp::Worker& worker) { return worker.step->num_rows; }

static void embed(const void* pointer, const rp::Worker& worker, int64_t row) {
    const RpEmbed& args = *static_cast<const RpEmbed*>(pointer);
    float* out = args.out + row * args.width;
    const int64_t id = worker.step->token_ids[row];
    rp::dequantize_row(args.type, args.table + id * args.row_bytes, args.width, out);
    for (int i = 0; i < args.width; ++i) out[i] *= args.scale;
}

// args.width is a multiple of R.
RP_INLINE void norm_row(const RpNorm& args, const float* x, float* out) {
    const float mean = sum_of_squares(x, args.width) / static_cast<float>(args.width);
    const F factor = fset(1.0f / std::sqrt(mean + args.eps));
    for (int i = 0; i < args.width; i += R) {
        F y = fmul(fmul(fload(x + i), factor), fload(args.weight + i));
        if (args.is_added) y = fadd(y, fload(out + i));
        fstore(out + i, y);
    }
}

static int64_t count_norm(const void* pointer, const rp::Worker& worker) {
    const RpNorm& args = *static_cast<const RpNorm*>(pointer);
    return args.is_logit_rows ? worker.step->num_logit_rows : worker.step->num_rows;
}

static void norm(const void* pointer, const rp::Worker& worker, int64_t row) {
    const RpNorm& args = *static_cast<const RpNorm*>(pointer);
    const int64_t source = args.is_logit_rows ? worker.step->logit_rows[row] : row;
    float* out =
        args.out ? args.out + row * args.width : reinterpret_cast<float*>(worker.scratch);
    norm_row(args, args.x + source * args.width, out);
    if (args.acts) quantize_row(out, *args.acts, row, is_reading(worker, count_norm(pointer, worker)));
}

template <class T>
RP_INLINE void move_row(T* rows, int64_t width, int64_t from, int64_t to) {
    std::memcpy(rows + to * width, rows + from * width, sizeof(T) * static_cast<size_t>(width));
}

static int64_t count_select(const void*, const rp::Worker&) { return 1; }

static void select(const void* pointer, const rp::Worker& worker, int64_t) {
    const RpSelect& args = *static_cast<const RpSelect*>(pointer);
    const RpActs& acts = *args.acts;
    const int64_t groups = acts.width / 32;
    for (int32_t to = 0; to < worker.step->num_logit_rows; ++to) {
        const int64_t from = worker.step->logit_rows[to];
        if (from == to) continue;
        move_row(args.x, args.width, from, to);
        move_row(acts.q, acts.width, from, to);
        move_row(acts.d, groups, from, to);
        move_row(acts.ds, groups, from, to);
        move_row(acts.sums, 2 * groups, from, to);
        if (args.floats) move_row(args.floats, acts.width, from, to);
    }
}

RP_INLINE F activate(F x, int activation) {
    if (activation == 0) return fmul(x, fsigmoid(x));
    if (activation == 2) return x;
    const F cube = fmul(fmul(x, x), x);
    const F inner = fmul(fset(1.5957691216f), ffma(fset(0.044715f), cube, x));
    return fmul(x, fsigmoid(inner));
}

// Columns of one piece: two spans.
RP_INLINE int gate_columns(const RpGate& args) { return 64 * span_groups(args.width); }

// is_reading: see quantize_groups.
RP_INLINE void gate_piece(const RpGate& args, int64_t row, int first, int last, bool is_reading,
                          float* scratch) {
    for (int i = first; i < last; i += R) {
        F y = activate(fload(args.gate + row * args.stride + i), args.activation);
        if (args.up) y = fmul(y, fload(args.up + row * args.stride + i));
        fstore(scratch + i - first, y);
        if (args.out) fstore(args.out + row * args.width + i, y);
    }
    if (args.acts)
        quantize_groups(scratch, *args.acts, row, first / 32, last / 32, is_reading);
}

RP_INLINE int64_t gate_pieces(const RpGate& args) {
    return (args.width + gate_columns(args) - 1) / gate_columns(args);
}

static int64_t count_gate(const void* pointer, const rp::Worker& worker) {
    return gate_pieces(*static_cast<const RpGate*>(pointer)) * worker.step->num_rows;
}

// args.width is a multiple of 32 when quantised, else of R.
static void gate(const void* pointer, const rp::Worker& worker, int64_t piece) {
    const RpGate& args = *static_cast<const RpGate*>(pointer);
    const int64_t pieces = gate_pieces(args);
    const int first = static_cast<int>(piece % pieces) * gate_columns(args);
    const int end = first + gate_columns(args);
    const int last = end < args.width ? end : args.width;
    gate_piece(args, piece / pieces, first, last, is_reading(worker, worker.step->num_rows),
               reinterpret_cast<float*>(worker.scratch));
}

}  // namespace RP_NS
