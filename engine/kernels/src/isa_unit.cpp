// One instruction set's kernels; compiled once per set with RP_NS naming it.
#include <cmath>
#include <cstring>
#include <utility>

#include "gguf_blocks.h"
#include "half.h"
#include "worker.h"

#if defined(RP_ISA_AVX2)
#include "isa_avx2.h"
#elif defined(RP_ISA_AVX512)
#include "isa_avx512.h"
#elif defined(RP_ISA_NEON)
#include "isa_neon.h"
#else
#include "isa_portable.h"
#endif

#include "vector_math.h"
#include "elementwise.h"
#include "linear.h"
#include "slab.h"
#include "rope.h"
#include "attend.h"
#include "attend_tile.h"

namespace RP_NS {

extern const rp::Table table;
const rp::Table table = {
    RP_NAME, R, {embed, norm, linear, gate, trig, rope, attend, merge},
};

}  // namespace RP_NS
