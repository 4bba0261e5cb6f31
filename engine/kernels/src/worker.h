// What a kernel sees of the run: its thread, the step, scratch memory and the next piece of work.
// Only declarations: units compiled for different instruction sets must not share inline code.
#pragma once
#include <cstdint>

#include "rp.h"

#if defined(_MSC_VER)
#define RP_INLINE static __forceinline
#define RP_INLINE_MEMBER __forceinline
#define RP_NOINLINE __declspec(noinline)
#define RP_LAMBDA
#else
#define RP_INLINE static inline __attribute__((always_inline))
#define RP_INLINE_MEMBER inline __attribute__((always_inline))
#define RP_NOINLINE __attribute__((noinline))
#define RP_LAMBDA __attribute__((always_inline))
#endif

#if defined(_MSC_VER) && defined(_M_X64)
#include <intrin.h>
#define RP_PREFETCH(p) _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0)
#define RP_PREFETCH_ONCE(p) _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_NTA)
#elif defined(_MSC_VER)
#define RP_PREFETCH(p) __prefetch(p)
#define RP_PREFETCH_ONCE(p) __prefetch(p)
#else
#define RP_PREFETCH(p) __builtin_prefetch(p)
#define RP_PREFETCH_ONCE(p) __builtin_prefetch(p, 0, 0)
#endif

namespace rp {

constexpr int kDenseRows = 8;  // of one sequence; fewer are attended and multiplied row by row
constexpr int kDenseKeys = 128;  // that many rows are attended with at once

// Query rows row_start..row_end-1 look at keys key_start..key_end-1; the result is a partial one.
// is_dense: the rows are many, and all of one sequence or all later than the keys.
struct PlanItem {
    int32_t row_start;
    int32_t row_end;
    int32_t key_start;
    int32_t key_end;
    int32_t slot;
    bool is_dense;
    uint8_t* const* blocks;
    const uint8_t* is_packed;
};

struct Plan {
    PlanItem* items;
    int32_t* row_slots;  // number of partial results of every row
    int32_t num_items;
};

// Partial results: sums (slot, T, H, D), and maximum and weight (slot, T, H, 2).
struct Partials {
    float* sums;
    float* stats;
};

struct Worker {
    const RpStep* step;
    const Plan* plans;  // one per attention group
    Partials partials;
    uint8_t* scratch;
    int32_t num_threads;
    bool is_reading;  // every sequence of the step has kDenseRows rows or more
};

// An operation is a number of independent pieces of work, which any thread may take. is_fine: pieces
// are short and alike, so that threads take several at once.
struct OpFunctions {
    int64_t (*count)(const void* args, const Worker& worker);
    void (*work)(const void* args, const Worker& worker, int64_t piece);
    bool is_fine;
};

constexpr int kMaximaBlock = 32;

struct Table {
    const char* name;
    int32_t lanes;
    OpFunctions ops[RP_NUM_OPS];
    void (*pack_plane)(const RpPlanePack& args);
    // Maxima of blocks of kMaximaBlock numbers; false where one is not finite.
    bool (*block_maxima)(const float* x, int64_t num_blocks, float* maxima);
};

}  // namespace rp
