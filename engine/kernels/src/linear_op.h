// Products of activations with matrices laid end to end: how they are cut into pieces of work.
#pragma once

namespace RP_NS {

RP_INLINE int64_t num_tiles(const RpLinear& args) {
    int64_t total = 0;
    for (int32_t i = 0; i < args.num_matrices; ++i) total += tiles_of(args.matrices[i]);
    return total;
}

RP_INLINE int64_t rows_of(const RpLinear& args, const RpStep& step) {
    return args.is_logit_rows ? step.num_logit_rows : step.num_rows;
}

// Whether the rows are many of one sequence each, and their activations have scales of spans. An
// output head in parts is not read in fixed point: few of its rows are, but for scoring texts.
RP_INLINE bool is_read(const RpLinear& args, const rp::Worker& worker) {
    return args.acts->has_spans && args.matrices->kind != RP_Q8P &&
           is_reading(worker, rows_of(args, *worker.step));
}

// Tiles first..last-1 of all matrices laid end to end.
RP_INLINE void linear_tiles(const RpLinear& args, const rp::Worker& worker, int64_t first,
                            int64_t last) {
    const int64_t rows = rows_of(args, *worker.step);
    const auto multiply = is_read(args, worker) ? read_kind : multiply_kind;
    for (int32_t i = 0; i < args.num_matrices && last > 0; ++i) {
        const RpMatrix& matrix = args.matrices[i];
        const int64_t tiles = tiles_of(matrix), end = last < tiles ? last : tiles;
        if (first < end) multiply(matrix, *args.acts, first, end, rows, worker.scratch);
        first = first < tiles ? 0 : first - tiles;
        last -= tiles;
    }
}

// Neighbouring tiles that one thread takes at once; a multiple of kTiles, even for some rows. Few
// where many rows make a tile long: what one thread does alone at the end costs the other threads.
RP_INLINE int64_t tiles_per_piece(const RpLinear& args, const rp::Worker& worker) {
    const int64_t rows = rows_of(args, *worker.step);
    const int64_t least = rows < kBatchRows ? kTiles : 2 * kTiles;
    const int64_t pieces = rows < 2 * kBatchRows ? 8 : 32;
    const int64_t fair = num_tiles(args) / (pieces * worker.num_threads);
    return fair < least ? least : fair > 64 ? 64 : fair / least * least;
}

static int64_t count_linear(const void* pointer, const rp::Worker& worker) {
    const RpLinear& args = *static_cast<const RpLinear*>(pointer);
    if (rows_of(args, *worker.step) == 0) return 0;
    const int64_t size = tiles_per_piece(args, worker);
    return (num_tiles(args) + size - 1) / size;
}

static void linear(const void* pointer, const rp::Worker& worker, int64_t piece) {
    const RpLinear& args = *static_cast<const RpLinear*>(pointer);
    const int64_t total = num_tiles(args), size = tiles_per_piece(args, worker);
    const int64_t last = (piece + 1) * size < total ? (piece + 1) * size : total;
    linear_tiles(args, worker, piece * size, last);
}

}  // namespace RP_NS
