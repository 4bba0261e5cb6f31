// How the attention of a step is cut into pieces of work; the same for all layers of a group.
#pragma once
#include <cstdint>
#include <vector>

#include "worker.h"

namespace rp {

// What a plan needs to know of an attention group.
struct GroupShape {
    int32_t num_kv_heads;
    int32_t block_size;
    int32_t window;
};

class PlanBuilder {
public:
    // capacity: most (slot, row) pairs the partial results have room for.
    PlanBuilder(int num_threads, int64_t capacity);

    // The plan stays valid until the next build.
    Plan build(const RpStep& step, const RpSlice* slices, const GroupShape& shape);

private:
    void add_dense(const RpSlice& slice, int64_t rows);
    void add_blocks(const RpSlice& slice);
    void add_few(const RpSlice& slice, int64_t first_key, int slot, int splits);
    void add_shared(const RpSlice* slices, int32_t num_slices, int64_t keys);
    void add_spans(PlanItem item, int slot, int splits);
    static PlanItem whole_of(const RpSlice& slice, int64_t first_key);
    void set_slots(const RpSlice& slice, int slots);
    int64_t oldest_key(int64_t place) const;
    int splits_for(int64_t pieces, int64_t keys, int64_t rows) const;
    int64_t shared_keys(const RpSlice* slices, int32_t num_slices) const;

    const int num_threads_;
    const int64_t capacity_;
    GroupShape shape_{};
    std::vector<PlanItem> items_;
    std::vector<int32_t> row_slots_;
};

}  // namespace rp
