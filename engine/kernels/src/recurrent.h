// Recurrent steps: short causal convolutions and the selective scan of Mamba. Both read and write
// the state of every sequence where it lies in its cell.
#pragma once

namespace RP_NS {

// ---- convolution ------------------------------------------------------------------------------

constexpr int kConvChannels = 128;  // of one piece
constexpr int kMostTaps = 8;

// Channels first..last-1 of one sequence. ring: the inputs of the last `taps` tokens, one row of
// kConvChannels each; the input of token t lies in row t % taps.
struct ConvPiece {
    const RpConv* args;
    const RpCell* cell;
    int first, last;
    float* ring;

    RP_INLINE_MEMBER float* inputs(int64_t t) const {
        return ring + t % args->taps * kConvChannels;
    }
    RP_INLINE_MEMBER float* state() const {
        return cell->data + args->cell_offset + static_cast<int64_t>(first) * (args->taps - 1);
    }
};

// Token t of the piece is row t - (taps - 1): what the cell holds comes first.
RP_INLINE void load_history(const ConvPiece& piece) {
    const int past = piece.args->taps - 1, channels = piece.last - piece.first;
    const float* state = piece.state();
    for (int i = 0; i < channels; ++i)
        for (int t = 0; t < past; ++t) piece.inputs(t)[i] = state[i * past + t];
}

RP_INLINE void store_history(const ConvPiece& piece, int64_t num_tokens) {
    const int past = piece.args->taps - 1, channels = piece.last - piece.first;
    float* state = piece.state();
    for (int i = 0; i < channels; ++i)
        for (int t = 0; t < past; ++t) state[i * past + t] = piece.inputs(num_tokens + t)[i];
}

RP_INLINE F conv_vector(const ConvPiece& piece, int64_t t, int i) {
    const RpConv& args = *piece.args;
    const float* weight = args.weight + piece.first + i;
    F sum = args.bias ? fload(args.bias + piece.first + i) : fzero();
    for (int tap = 0; tap < args.taps; ++tap)
        sum = ffma(fload(weight + static_cast<int64_t>(tap) * args.channels),
                   fload(piece.inputs(t + tap) + i), sum);
    return sum;
}

RP_INLINE void conv_token(const ConvPiece& piece, int64_t t, float* y) {
    const RpConv& args = *piece.args;
    const int64_t row = piece.cell->start + t, at = row * args.stride + piece.first;
    float* newest = piece.inputs(t + args.taps - 1);
    for (int i = 0; i < piece.last - piece.first; i += R) {
        F x = fload(args.x + at + i);
        if (args.gate_in) x = fmul(x, fload(args.gate_in + at + i));
        fstore(newest + i, x);
        F sum = activate(conv_vector(piece, t, i), args.activation);
        if (args.gate_out) sum = fmul(sum, fload(args.gate_out + at + i));
        fstore(y + i, sum);
        if (args.out) fstore(args.out + row * args.channels + piece.first + i, sum);
    }
    if (args.acts)
        quantize_groups(y, *args.acts, row, piece.first / 32, piece.last / 32, false);
}

RP_INLINE int64_t conv_pieces(const RpConv& args) {
    return (args.channels + kConvChannels - 1) / kConvChannels;
}

static int64_t count_conv(const void* pointer, const rp::Worker& worker) {
    return conv_pieces(*static_cast<const RpConv*>(pointer)) * worker.step->num_cells;
}

// args.channels is a multiple of 32, args.taps at most kMostTaps.
static void conv(const void* pointer, const rp::Worker& worker, int64_t number) {
    const RpConv& args = *static_cast<const RpConv*>(pointer);
    const int64_t pieces = conv_pieces(args);
    const int first = static_cast<int>(number % pieces) * kConvChannels;
    const int end = first + kConvChannels;
    float* scratch = reinterpret_cast<float*>(worker.scratch);
    const ConvPiece piece{&args, worker.step->cells + number / pieces, first,
                          end < args.channels ? end : args.channels, scratch};
    const int64_t num_tokens = piece.cell->end - piece.cell->start;
    load_history(piece);
    for (int64_t t = 0; t < num_tokens; ++t)
        conv_token(piece, t, scratch + kMostTaps * kConvChannels);
    store_history(piece, num_tokens);
}

// ---- scan -------------------------------------------------------------------------------------

constexpr int kScanChannels = 32;  // of one piece
constexpr int kMostStates = 64;

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|); the logarithm as 2 artanh(e / (2 + e)), whose
// series up to the 15th power is exact to a float for e <= 1.
RP_INLINE F fsoftplus(F x) {
    const F e = fexp(fsub(fzero(), fabsv(x)));
    const F s = fdiv(e, fadd(fset(2.0f), e)), square = fmul(s, s);
    F y = fset(2.0f / 15.0f);
    y = ffma(y, square, fset(2.0f / 13.0f));
    y = ffma(y, square, fset(2.0f / 11.0f));
    y = ffma(y, square, fset(2.0f / 9.0f));
    y = ffma(y, square, fset(2.0f / 7.0f));
    y = ffma(y, square, fset(2.0f / 5.0f));
    y = ffma(y, square, fset(2.0f / 3.0f));
    y = ffma(y, square, fset(2.0f));
    return ffma(y, s, fmaxv(x, fzero()));
}

// The state of kScanChannels channels, turned: one row of channels per state number.
RP_INLINE void load_state(const float* cell, int num_states, float* turned) {
    for (int i = 0; i < kScanChannels; ++i)
        for (int n = 0; n < num_states; ++n)
            turned[n * kScanChannels + i] = cell[i * num_states + n];
}

RP_INLINE void store_state(const float* turned, int num_states, float* cell) {
    for (int i = 0; i < kScanChannels; ++i)
        for (int n = 0; n < num_states; ++n)
            cell[i * num_states + n] = turned[n * kScanChannels + i];
}

// Channels channel..channel+R-1 of one row: the state decays and is fed, then read.
RP_INLINE F scan_vector(const RpScan& args, int64_t row, int64_t channel, float* state) {
    const int64_t at = row * args.channels + channel;
    const F u = fload(args.u + at), dt = fsoftplus(fload(args.dt + at)), fed = fmul(dt, u);
    const float* b = args.b + row * args.bc_stride;
    const float* c = args.c + row * args.bc_stride;
    F y = fmul(u, fload(args.d + channel));
    for (int n = 0; n < args.num_states; ++n, state += kScanChannels) {
        const F a = fload(args.a + static_cast<int64_t>(n) * args.channels + channel);
        const F decayed = fmul(fload(state), fexp(fmul(dt, a)));
        const F now = ffma(fed, fset(b[n]), decayed);
        fstore(state, now);
        y = ffma(now, fset(c[n]), y);
    }
    const F z = fload(args.z + row * args.z_stride + channel);
    return fmul(y, activate(z, 0));
}

static int64_t count_scan(const void* pointer, const rp::Worker& worker) {
    const RpScan& args = *static_cast<const RpScan*>(pointer);
    return static_cast<int64_t>(args.channels / kScanChannels) * worker.step->num_cells;
}

// args.channels is a multiple of 32, args.num_states at most kMostStates.
static void scan(const void* pointer, const rp::Worker& worker, int64_t number) {
    const RpScan& args = *static_cast<const RpScan*>(pointer);
    const int64_t pieces = args.channels / kScanChannels;
    const RpCell& cell = worker.step->cells[number / pieces];
    const int64_t group = number % pieces, channel = group * kScanChannels;
    float* in_place = cell.data + args.cell_offset + channel * args.num_states;
    float* state = reinterpret_cast<float*>(worker.scratch);
    float* y = state + kMostStates * kScanChannels;
    load_state(in_place, args.num_states, state);
    for (int64_t row = cell.start; row < cell.end; ++row) {
        for (int i = 0; i < kScanChannels; i += R)
            fstore(y + i, scan_vector(args, row, channel + i, state + i));
        if (args.out)
            std::memcpy(args.out + row * args.channels + channel, y, 4 * kScanChannels);
        if (args.acts) {
            const int group_end = static_cast<int>(group) + kScanChannels / 32;
            quantize_groups(y, *args.acts, row, static_cast<int>(group), group_end, false);
        }
    }
    store_state(state, args.num_states, in_place);
}

}  // namespace RP_NS
