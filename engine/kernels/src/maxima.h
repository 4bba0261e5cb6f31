// The largest number of every block of a row.
#pragma once

namespace RP_NS {

// False where a number is not finite: only then x - x is not zero.
static bool block_maxima(const float* x, int64_t num_blocks, float* maxima) {
    F strange = fzero();
    for (int64_t block = 0; block < num_blocks; ++block, x += rp::kMaximaBlock) {
        F largest = fload(x);
        for (int i = 0; i < rp::kMaximaBlock; i += R) {
            const F v = fload(x + i);
            largest = fmaxv(largest, v);
            strange = fadd(strange, fsub(v, v));
        }
        maxima[block] = fmaxh(largest);
    }
    return fsum(strange) == 0.0f;
}

}  // namespace RP_NS
