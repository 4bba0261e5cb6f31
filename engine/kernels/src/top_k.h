// The largest of many numbers: one pass over all of them, a second one over the few blocks that
// can hold one of these.
#pragma once
#include <cstdint>

#include "worker.h"

namespace rp {

// The k largest of n finite numbers, largest first, of equals the first ones; 0 < k <= n.
// False where a number is not finite.
bool top_k(const Table& table, const float* x, int64_t n, int32_t k, float* values, int64_t* ids);

}  // namespace rp
