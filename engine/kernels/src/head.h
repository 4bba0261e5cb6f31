// The output head for one row of activations: the largest logits exactly, the others roughly.
//
// A logit is a sum of d * q * x, and q + 128 is 32 * v + 16 * b + l: three bits, one, and a nibble.
// The first pass reads v and d alone, 0.41 of the bytes, and takes the rest for its mean. What that is
// off by is a sum of many small terms, whose signs have nothing to do with each other: its deviation
// is 9.24 times the root of the sum of (d * x)^2, and beyond kDeviations of these it is not expected
// once in the life of a machine. That gives every tile of rows a bound. The tiles of the largest
// bounds are multiplied exactly, in the arithmetic of linear.h: no more is to be looked for than what
// reaches the last of the wanted logits found there. Where the bound of a tile does, b is read, which
// halves the deviation, and where it still does, the tile is multiplied exactly as well.
// Should a single logit that is exact, of hundreds from all over the vocabulary, turn out to be off
// by more than its bound, then these weights are of another kind, and everything is multiplied exactly.
#pragma once

namespace RP_NS {

// Of what the first pass takes for its mean: root of (32^2 - 1) / 12; of the second pass half of that.
constexpr float kDeviation = 9.24f;
constexpr float kDeviations = 7.0f;
constexpr int64_t kPieceTiles = 64;

// Tiles that are multiplied before it is known what to look for.
RP_INLINE int64_t num_seeds(const RpStep& step) { return 64 + 3 * int64_t{step.num_sure}; }

RP_INLINE bool is_short_cut(const RpHead& args, const rp::Worker& worker) {
    const RpStep& step = *worker.step;
    return step.num_sure > 0 && rows_of(args.linear, step) == 1 &&
           num_seeds(step) < tiles_of(*args.linear.matrices) / 8;
}

RP_INLINE int64_t head_pieces(const RpHead& args) {
    return (tiles_of(*args.linear.matrices) + kPieceTiles - 1) / kPieceTiles;
}

RP_INLINE int64_t piece_end(const RpHead& args, int64_t piece) {
    const int64_t tiles = tiles_of(*args.linear.matrices), end = (piece + 1) * kPieceTiles;
    return end < tiles ? end : tiles;
}

static int64_t count_one(const void* pointer, const rp::Worker& worker) {
    return is_short_cut(*static_cast<const RpHead*>(pointer), worker) ? 1 : 0;
}

static int64_t count_pieces(const void* pointer, const rp::Worker& worker) {
    const RpHead& args = *static_cast<const RpHead*>(pointer);
    return is_short_cut(args, worker) ? head_pieces(args) : 0;
}

// ---- activations ----------------------------------------------------------------------------

// One of these as a byte is so many of the 16-bit ones.
constexpr float kByteStep = 32767.0f / 127.0f;

// The activations as bytes in the order of the columns.
static void round_acts(const RpActs& acts, int8_t* out) {
    constexpr int kFrom[4] = {0, 2, 1, 3};
    for (int64_t i = 0; i < acts.width; ++i)
        out[i] = static_cast<int8_t>(
            std::nearbyint(static_cast<float>(acts.q[i / 4 * 4 + kFrom[i % 4]]) / kByteStep));
}

// The square of a group: of what its columns were, and of what rounding them can add to the deviation
// of the second pass, and less to that of the first: 32 * 127^2 / 12 of 21.3.
RP_INLINE float square_of(const int16_t* q, float d) {
    float square = 0.0f;
    for (int i = 0; i < 32; ++i) {
        const float x = d * q[i];
        square += x * x;
    }
    return square + 2020.0f * (kByteStep * d) * (kByteStep * d);
}

// What all tiles need of the activations, once: their bytes, and for every group what the products
// of these are scaled by, the sum, and the square.
static void prepare_sketch(const void* pointer, const rp::Worker&, int64_t) {
    const RpHead& args = *static_cast<const RpHead*>(pointer);
    const RpActs& acts = *args.linear.acts;
    round_acts(acts, args.bytes);
    float* out = args.scales;
    for (int64_t g = 0; g < acts.width / 32; ++g, out += 3) {
        out[0] = kByteStep * acts.d[g];
        out[1] = acts.ds[g];
        out[2] = square_of(acts.q + 32 * g, acts.d[g]);
    }
}

// ---- rough logits ---------------------------------------------------------------------------

// The products of v with the activations of one group.
RP_INLINE I sketch_group(const uint8_t* high, const int8_t* bytes) {
    B sum = bzero();
    each<8>([&](auto j) RP_LAMBDA { sum = bdot(sum, high_bits<j>(high), bytes + 4 * j); });
    return btotal(sum);
}

// Those of b.
RP_INLINE I middle_group(const uint8_t* middle, const int8_t* bytes) {
    const W bits = wload(middle);
    B sum = bzero();
    each<8>([&](auto j) RP_LAMBDA {
        constexpr int J = j;
        sum = bdot(sum, wplane<J + 4>(bits, 1), bytes + 4 * J);
    });
    return btotal(sum);
}

// Sums of a tile of rows: logits, and squares of what these can be off by.
struct Rough {
    F total, spread;
};

// out[0] * products + out[1] * sums, where FACTOR and OFFSET tell what a product stands for.
RP_INLINE void add_rough(Rough& rough, I products, const uint8_t* scale, const float* of_group,
                         float factor, float offset) {
    const F d = fload_f16(scale);
    const F sum = ffma(fcvt(products), fset(factor * of_group[0]), fset(offset * of_group[1]));
    rough.total = ffma(d, sum, rough.total);
    rough.spread = ffma(fmul(d, d), fset(of_group[2]), rough.spread);
}

RP_INLINE float bound_of(const Rough& rough, float deviation) {
    return fmaxh(rough.total) + kDeviations * deviation * std::sqrt(fmaxh(rough.spread));
}

RP_INLINE int64_t num_groups(const RpHead& args) { return args.linear.acts->width / 32; }

// Fewer bytes are multiplied in less time: they are fetched from further ahead than others.
constexpr int kSketchAhead = 2 * kAhead;

// The bound of a tile, whose rough logits are written.
static float sketch_tile(const RpHead& args, int64_t tile) {
    constexpr int kQuants = 3 * Parts::kVector, kGroup = kQuants + 2 * R;
    const int64_t groups = num_groups(args);
    const Parts parts = Parts::of(*args.linear.matrices, groups, tile);
    Rough rough{fzero(), fzero()};
    for (int64_t g = 0; g < groups; ++g) {
        prefetch_once(parts.high + kSketchAhead + g * kGroup, kGroup);
        add_rough(rough, sketch_group(parts.high + g * kQuants, args.bytes + 32 * g),
                  parts.scales + 2 * R * g, args.scales + 3 * g, 32.0f, 15.5f - 128.0f);
    }
    store_tile(*args.linear.matrices, tile, 0, rough.total);
    return bound_of(rough, kDeviation);
}

static void sketch(const void* pointer, const rp::Worker&, int64_t piece) {
    const RpHead& args = *static_cast<const RpHead*>(pointer);
    for (int64_t tile = piece * kPieceTiles; tile < piece_end(args, piece); ++tile)
        args.bounds[tile] = sketch_tile(args, tile);
}

RP_INLINE void fetch_middle(const RpHead& args, int64_t tile) {
    const int64_t groups = num_groups(args);
    const Parts parts = Parts::of(*args.linear.matrices, groups, tile);
    prefetch_once(parts.middle, groups * Parts::kVector);
    prefetch_once(parts.scales, groups * 2 * R);
}

// The logits of a tile, where a matrix may end.
RP_INLINE F load_tile(const RpMatrix& matrix, int64_t tile) {
    const int64_t left = matrix.num_rows - tile * R;
    if (left >= R) return fload(matrix.out + tile * R);
    float values[R];
    for (int64_t i = 0; i < R; ++i) values[i] = i < left ? matrix.out[tile * R + i] : 0.0f;
    return fload(values);
}

// The nearer bound of a tile, whose logits are written less roughly.
static float refine_tile(const RpHead& args, int64_t tile) {
    const int64_t groups = num_groups(args);
    const Parts parts = Parts::of(*args.linear.matrices, groups, tile);
    Rough rough{load_tile(*args.linear.matrices, tile), fzero()};
    for (int64_t g = 0; g < groups; ++g)
        add_rough(rough, middle_group(parts.middle + Parts::kVector * g, args.bytes + 32 * g),
                  parts.scales + 2 * R * g, args.scales + 3 * g, 16.0f, -8.0f);
    store_tile(*args.linear.matrices, tile, 0, rough.total);
    return bound_of(rough, 0.5f * kDeviation);
}

// ---- thresholds -----------------------------------------------------------------------------

static void find_seeds(const void* pointer, const rp::Worker& worker, int64_t) {
    const RpHead& args = *static_cast<const RpHead*>(pointer);
    const int64_t tiles = tiles_of(*args.linear.matrices);
    const int64_t stride = tiles >= 16384 ? 4 : 1;  // then every fourth tile tells enough
    const auto visit = [&](auto f) {
        for (int64_t tile = 0; tile < tiles; tile += stride) f(args.bounds[tile]);
    };
    *args.threshold = find_threshold(visit, worker, num_seeds(*worker.step) / stride);
}

// ---- exact logits ---------------------------------------------------------------------------

constexpr float kIsExact = INFINITY;  // the bound of a tile that is exact
constexpr int32_t kIsOff = -1;

RP_INLINE int64_t rows_in_tile(const RpMatrix& matrix, int64_t tile) {
    const int64_t left = matrix.num_rows - tile * R;
    return left < R ? left : R;
}

// Weights of a tile that was fetched whole.
struct Fetched : Packed<Q8P> {
    RP_INLINE_MEMBER void next() {
        high += 3 * kVector;
        scales += 2 * R;
        middle += kVector;
        low += 4 * kVector;
    }
};

RP_INLINE Fetched fetch_tile(const RpHead& args, int64_t tile) {
    const int64_t groups = num_groups(args);
    const Fetched source{packed_tile<Q8P>(*args.linear.matrices, groups, tile)};
    prefetch_once(source.high, groups * (3 * Parts::kVector + 2 * R));
    prefetch_once(source.middle, groups * Parts::kVector);
    prefetch_once(source.low, groups * 4 * Parts::kVector);
    return source;
}

// False where a logit was off by more than the bound of its tile allowed.
static bool exact_tile(const RpHead& args, int64_t tile, const Fetched& fetched) {
    const RpMatrix& matrix = *args.linear.matrices;
    const int64_t rows = rows_in_tile(matrix, tile);
    const float* out = matrix.out + tile * R;
    float rough[R], largest = -INFINITY;
    for (int64_t i = 0; i < rows; ++i) {
        rough[i] = out[i];
        largest = largest > out[i] ? largest : out[i];
    }
    const Fetched source[1] = {fetched};
    multiply_rows<Q8P, 1>(source, matrix, *args.linear.acts, tile, 0);
    bool is_within = true;
    for (int64_t i = 0; i < rows; ++i)
        is_within = is_within && std::fabs(out[i] - rough[i]) <= args.bounds[tile] - largest;
    args.bounds[tile] = kIsExact;
    return is_within;
}

// Tiles of one piece.
struct Tiles {
    int64_t at[kPieceTiles], count = 0;
};

// Those whose bound is not below the threshold, and that are not exact yet.
static Tiles promising_tiles(const RpHead& args, int64_t piece) {
    const float threshold = *args.threshold;
    Tiles found;
    for (int64_t tile = piece * kPieceTiles; tile < piece_end(args, piece); ++tile)
        if (!(args.bounds[tile] < threshold) && args.bounds[tile] != kIsExact)
            found.at[found.count++] = tile;
    return found;
}

// Each while the next one is fetched.
static bool exact_tiles(const RpHead& args, const Tiles& tiles) {
    bool is_within = true;
    Fetched next{};
    if (tiles.count > 0) next = fetch_tile(args, tiles.at[0]);
    for (int64_t i = 0; i < tiles.count; ++i) {
        const Fetched source = next;
        if (i + 1 < tiles.count) next = fetch_tile(args, tiles.at[i + 1]);
        is_within = exact_tile(args, tiles.at[i], source) && is_within;
    }
    return is_within;
}

// exact[piece]: how many of its tiles are exact, kIsOff where a bound did not hold.
static void make_seeds(const void* pointer, const rp::Worker&, int64_t piece) {
    const RpHead& args = *static_cast<const RpHead*>(pointer);
    const Tiles tiles = promising_tiles(args, piece);
    args.exact[piece] = exact_tiles(args, tiles) ? static_cast<int32_t>(tiles.count) : kIsOff;
}

static void find_sure(const void* pointer, const rp::Worker& worker, int64_t) {
    const RpHead& args = *static_cast<const RpHead*>(pointer);
    const RpMatrix& matrix = *args.linear.matrices;
    const auto visit = [&](auto f) {
        for (int64_t piece = 0; piece < head_pieces(args); ++piece) {
            if (args.exact[piece] == 0) continue;
            for (int64_t tile = piece * kPieceTiles; tile < piece_end(args, piece); ++tile) {
                if (args.bounds[tile] != kIsExact) continue;
                for (int64_t i = 0; i < rows_in_tile(matrix, tile); ++i)
                    f(matrix.out[tile * R + i]);
            }
        }
    };
    *args.threshold = find_threshold(visit, worker, worker.step->num_sure);
}

// Tiles that are fetched ahead of the one that is refined.
constexpr int64_t kTilesAhead = 4;

static void make_sure(const void* pointer, const rp::Worker&, int64_t piece) {
    const RpHead& args = *static_cast<const RpHead*>(pointer);
    const Tiles tiles = promising_tiles(args, piece);
    Tiles left;
    for (int64_t i = 0; i < kTilesAhead && i < tiles.count; ++i) fetch_middle(args, tiles.at[i]);
    for (int64_t i = 0; i < tiles.count; ++i) {
        if (i + kTilesAhead < tiles.count) fetch_middle(args, tiles.at[i + kTilesAhead]);
        const int64_t tile = tiles.at[i];
        args.bounds[tile] = refine_tile(args, tile);
        if (!(args.bounds[tile] < *args.threshold)) left.at[left.count++] = tile;
    }
    if (!exact_tiles(args, left)) args.exact[piece] = kIsOff;
}

// ---- everything -----------------------------------------------------------------------------

static int64_t count_whole(const void* pointer, const rp::Worker& worker) {
    const RpHead& args = *static_cast<const RpHead*>(pointer);
    bool is_done = is_short_cut(args, worker);
    for (int64_t piece = 0; is_done && piece < head_pieces(args); ++piece)
        is_done = args.exact[piece] != kIsOff;
    return is_done ? 0 : count_linear(&args.linear, worker);
}

static void multiply_whole(const void* pointer, const rp::Worker& worker, int64_t piece) {
    linear(&static_cast<const RpHead*>(pointer)->linear, worker, piece);
}

}  // namespace RP_NS
