#include "top_k.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace rp {
namespace {

// Every block of the k with the largest maxima holds a number at least as large as this.
float threshold_of(std::vector<float> maxima, int32_t k) {
    if (static_cast<size_t>(k) > maxima.size()) return -std::numeric_limits<float>::infinity();
    const auto at = maxima.begin() + (k - 1);
    std::nth_element(maxima.begin(), at, maxima.end(), std::greater<float>());
    return *at;
}

bool add_last_block(const float* x, int64_t first, int64_t n, std::vector<float>& maxima) {
    if (first == n) return true;
    const auto is_finite = [](float value) { return std::isfinite(value); };
    maxima.push_back(*std::max_element(x + first, x + n));
    return std::all_of(x + first, x + n, is_finite);
}

std::vector<int64_t> at_least(const float* x, int64_t n, const std::vector<float>& maxima,
                              float threshold) {
    std::vector<int64_t> found;
    for (size_t block = 0; block < maxima.size(); ++block) {
        if (maxima[block] < threshold) continue;
        const int64_t first = static_cast<int64_t>(block) * kMaximaBlock;
        for (int64_t i = first; i < std::min(n, first + kMaximaBlock); ++i)
            if (x[i] >= threshold) found.push_back(i);
    }
    return found;
}

}  // namespace

bool top_k(const Table& table, const float* x, int64_t n, int32_t k, float* values, int64_t* ids) {
    const int64_t whole = n / kMaximaBlock;
    std::vector<float> maxima(static_cast<size_t>(whole));
    if (!table.block_maxima(x, whole, maxima.data())) return false;
    if (!add_last_block(x, whole * kMaximaBlock, n, maxima)) return false;
    std::vector<int64_t> found = at_least(x, n, maxima, threshold_of(maxima, k));
    const auto is_before = [x](int64_t a, int64_t b) {
        return x[a] > x[b] || (x[a] == x[b] && a < b);
    };
    std::partial_sort(found.begin(), found.begin() + k, found.end(), is_before);
    std::copy_n(found.begin(), k, ids);
    std::transform(ids, ids + k, values, [x](int64_t i) { return x[i]; });
    return true;
}

}  // namespace rp
