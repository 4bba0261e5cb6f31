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
#include "parts.h"
#include "linear.h"
#include "dense.h"
#include "linear_read.h"
#include "linear_op.h"
#include "threshold.h"
#include "head.h"
#include "slab.h"
#include "hadamard.h"
#include "rope.h"
#include "attend.h"
#include "attend_int16.h"
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
        {count_rows, embed, true},
        {count_norm, norm, true},
        {count_linear, linear, false},
        {count_gate, gate, true},
        {count_rows, trig, true},
        {count_rows, rope, true},
        {count_attend, attend, false},
        {count_rows, merge, true},
        {count_select, select, false},
        {count_float_linear, float_linear, false},
        {count_conv, conv, false},
        {count_scan, scan, false},
        {count_row_norm, row_norm, true},
        {count_rows, grow, true},
        {count_one, prepare_sketch, false},
        {count_pieces, sketch, false},
        {count_one, find_seeds, false},
        {count_pieces, make_seeds, false},
        {count_one, find_sure, false},
        {count_pieces, make_sure, false},
        {count_whole, multiply_whole, false},
    },
    pack_plane,
    block_maxima,
};

}  // namespace RP_NS
