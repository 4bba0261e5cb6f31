// The normalised Hadamard transform, in Sylvester's order as engine/memory/quantize.py has it.
#pragma once

namespace RP_NS {

// Signs of the transform of one vector: row j has +1 or -1 for every lane.
struct HadamardSigns {
    float rows[R][R];
    constexpr HadamardSigns() : rows{} {
        for (int j = 0; j < R; ++j) {
            for (int i = 0; i < R; ++i) {
                int parity = 0;
                for (int bits = i & j; bits; bits &= bits - 1) parity ^= 1;
                rows[j][i] = parity ? -1.0f : 1.0f;
            }
        }
    }
};

constexpr HadamardSigns kSigns;

// In place; size is a power of two and at least R.
RP_INLINE void hadamard(float* x, int size) {
    const F scale = fset(1.0f / std::sqrt(static_cast<float>(size)));
    for (int i = 0; i < size; i += R) {
        F sum = fzero();
        for (int j = 0; j < R; ++j) sum = ffma(fset(x[i + j]), fload(kSigns.rows[j]), sum);
        fstore(x + i, fmul(sum, scale));
    }
    for (int step = R; step < size; step *= 2) {
        for (int i = 0; i < size; i += R) {
            if (i & step) continue;
            const F a = fload(x + i), b = fload(x + i + step);
            fstore(x + i, fadd(a, b));
            fstore(x + i + step, fsub(a, b));
        }
    }
}

}  // namespace RP_NS
