// Products of int16 pairs: a few rows with as many lanes as registers hold sums for.
#pragma once

namespace RP_NS {

constexpr int kLanes = 3 * R;  // columns of one product

// Element (r, i) of the left matrix is the pair at p + r * row + i * step.
struct Operand {
    const int16_t* p;
    int64_t row, step;
};

// sum = ROWS rows of a, (ROWS, n) pairs, times the first V vectors of b, (n, kLanes) pairs. What calls
// it is no part of larger functions: there the sums would not all stay in registers.
template <int ROWS, int V>
RP_INLINE void dense(Operand a, const int16_t* b, int n, S (&sum)[V * ROWS]) {
    each<V * ROWS>([&](auto j) RP_LAMBDA { sum[j] = szero(); });
    for (int i = 0; i < n; ++i) {
        H right[V];
        each<V>([&](auto v) RP_LAMBDA { right[v] = hload(b + (3 * i + v) * 2 * R); });
        each<ROWS>([&](auto r) RP_LAMBDA {
            const H left = hset(a.p + r * a.row + i * a.step);
            each<V>([&](auto v) RP_LAMBDA { sum[V * r + v] = sdot(sum[V * r + v], left, right[v]); });
        });
    }
}

}  // namespace RP_NS
