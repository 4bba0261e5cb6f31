// One instruction set's kernels; compiled once per set with RP_NS naming it.
#include <cmath>
#include <cstring>
#include <type_traits>
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
#include "hadamard.h"
#include "rope.h"
#include "attend.h"
#include "attend_tile.h"
#include "kv_pack.h"
#include "float_linear.h"
#include "maxima.h"
#include "recurrent.h"
#include "row_norm.h"

namespace RP_NS {

extern const rp::Table table;
const rp::Table table = {
    RP_NAME,
    R,
    {
        {count_rows, embed},
        {count_norm, norm},
        {count_linear, linear},
        {count_gate, gate},
        {count_rows, trig},
        {count_rows, rope},
        {count_attend, attend},
        {count_rows, merge},
        {count_select, select},
        {count_float_linear, float_linear},
        {count_conv, conv},
        {count_scan, scan},
        {count_row_norm, row_norm},
        {count_rows, grow},
    },
    pack_plane,
    block_maxima,
};

}  // namespace RP_NS
