#include "plan.h"

#include <algorithm>

namespace rp {
namespace {

constexpr int32_t kQueryRows = 128;
constexpr int64_t kLeastKeys = 128;
constexpr int kMostSplits = 64;
constexpr int64_t kKeysPerRow = 8;
// Fewer rows behind a common prefix are attended one by one.
constexpr int32_t kSharedRows = 4;

int32_t rows_of(const RpSlice& slice) { return slice.end - slice.start; }

}  // namespace

PlanBuilder::PlanBuilder(int num_threads, int64_t capacity)
    : num_threads_(num_threads), capacity_(capacity) {}

Plan PlanBuilder::build(const RpStep& step, const RpSlice* slices, const GroupShape& shape) {
    shape_ = shape;
    items_.clear();
    row_slots_.assign(static_cast<size_t>(step.num_rows), 1);
    const int64_t shared = shared_keys(slices, step.num_slices);
    if (shared > 0) add_shared(slices, step.num_slices, shared);
    const int slot = shared > 0 ? row_slots_[0] - 1 : 0;
    for (int32_t i = 0; i < step.num_slices; ++i) {
        const RpSlice& slice = slices[i];
        if (rows_of(slice) >= kDenseRows) {
            add_dense(slice, step.num_rows);
            continue;
        }
        const int64_t oldest = std::max(shared, oldest_key(slice.first_place));
        const int64_t keys = slice.first_place + rows_of(slice) - oldest;
        const int64_t pieces = static_cast<int64_t>(shape.num_kv_heads) * step.num_slices;
        add_few(slice, shared, slot, shared > 0 ? 1 : splits_for(pieces, keys, step.num_rows));
    }
    return {items_.data(), row_slots_.data(), static_cast<int32_t>(items_.size())};
}

int64_t PlanBuilder::oldest_key(int64_t place) const {
    return shape_.window > 0 ? std::max<int64_t>(0, place - shape_.window + 1) : 0;
}

// The fewest cuts of the keys that keep every thread busy to the end.
int PlanBuilder::splits_for(int64_t pieces, int64_t keys, int64_t rows) const {
    const int64_t room = std::min<int64_t>(capacity_ / rows, kMostSplits);
    const int64_t most = std::max<int64_t>(1, std::min(keys / kLeastKeys, room));
    int64_t splits = 1;
    while (splits < most && pieces * splits < 8 * num_threads_ &&
           (pieces * splits < 2 * num_threads_ || pieces * splits % num_threads_ != 0))
        ++splits;
    return static_cast<int>(splits);
}

// Many rows of one sequence. Keys are converted for every piece that sees them: where rows are few
// beside the keys, these are cut rather than the rows.
void PlanBuilder::add_dense(const RpSlice& slice, int64_t rows) {
    const int32_t heads = shape_.num_kv_heads;
    const int64_t oldest = oldest_key(slice.first_place);
    const int64_t keys = slice.first_place + rows_of(slice) - oldest;
    const int splits = keys < kKeysPerRow * rows_of(slice) ? 1 : splits_for(heads, keys, rows);
    if (splits == 1 || heads * splits < 2 * num_threads_) return add_blocks(slice);
    PlanItem item = whole_of(slice, oldest);
    item.is_dense = true;
    add_spans(item, 0, splits);
    set_slots(slice, splits);
}

// Blocks of queries, the longest first.
void PlanBuilder::add_blocks(const RpSlice& slice) {
    const auto blocks_of = [&](int32_t size) { return (rows_of(slice) + size - 1) / size; };
    int32_t size = kQueryRows;
    while (size > kDenseRows && blocks_of(size) * shape_.num_kv_heads < 2 * num_threads_) size /= 2;
    const int32_t blocks = blocks_of(size);
    for (int32_t i = blocks - 1; i >= 0; --i) {
        PlanItem item = whole_of(slice, oldest_key(slice.first_place + i * size));
        item.row_start += i * size;
        item.row_end = std::min(slice.end, item.row_start + size);
        item.key_end = slice.first_place + item.row_end - slice.start;
        item.is_dense = true;
        items_.push_back(item);
    }
}

void PlanBuilder::add_few(const RpSlice& slice, int64_t first_key, int slot, int splits) {
    add_spans(whole_of(slice, std::max(first_key, oldest_key(slice.first_place))), slot, splits);
    set_slots(slice, slot + splits);
}

// All rows of a sequence and the keys from first_key on.
PlanItem PlanBuilder::whole_of(const RpSlice& slice, int64_t first_key) {
    PlanItem item{};
    item.row_start = slice.start;
    item.row_end = slice.end;
    item.key_start = static_cast<int32_t>(first_key);
    item.key_end = slice.first_place + rows_of(slice);
    item.blocks = slice.blocks;
    item.is_packed = slice.is_packed;
    return item;
}

void PlanBuilder::set_slots(const RpSlice& slice, int slots) {
    std::fill(row_slots_.begin() + slice.start, row_slots_.begin() + slice.end, slots);
}

// The common prefix of all sequences, read once for the whole batch.
void PlanBuilder::add_shared(const RpSlice* slices, int32_t num_slices, int64_t keys) {
    PlanItem item{};
    item.row_start = slices[0].start;
    item.row_end = slices[num_slices - 1].end;
    item.key_end = static_cast<int32_t>(keys);
    item.is_dense = true;
    item.blocks = slices[0].blocks;
    item.is_packed = slices[0].is_packed;
    const int64_t rows = item.row_end - item.row_start;
    const int64_t room = std::max<int64_t>(1, capacity_ / rows - 1);
    const int splits = std::min<int>(splits_for(shape_.num_kv_heads, keys, rows),
                                     static_cast<int>(room));
    add_spans(item, 0, splits);
    for (int32_t& slots : row_slots_) slots = splits + 1;
}

// Cut the keys of an item into spans of whole blocks, as equal as these allow; of whole tiles where it
// is dense, so that a row's tiles hold the same keys wherever the cuts are.
void PlanBuilder::add_spans(PlanItem item, int slot, int splits) {
    const int64_t least = item.is_dense ? kDenseKeys : 1;
    const int64_t size = std::max<int64_t>(shape_.block_size, least), first = item.key_start / size;
    const int32_t end = item.key_end;
    const int64_t blocks = (end + size - 1) / size - first;
    for (int i = 0; i < splits; ++i) {
        const int64_t last = (first + blocks * (i + 1) / splits) * size;
        item.key_end = static_cast<int32_t>(std::min<int64_t>(end, last));
        item.slot = slot + i;
        items_.push_back(item);
        item.key_start = std::max(item.key_start, item.key_end);
    }
}

// Tokens in blocks that all sequences of a batch have in common; 0 when not worth a pass.
int64_t PlanBuilder::shared_keys(const RpSlice* slices, int32_t num_slices) const {
    if (num_slices < 2 || shape_.window > 0) return 0;
    int32_t common = slices[0].num_blocks;
    int32_t rows = 0;
    for (int32_t i = 0; i < num_slices; ++i) {
        if (rows_of(slices[i]) >= kDenseRows) return 0;
        rows += rows_of(slices[i]);
        common = std::min(common, slices[i].first_place / shape_.block_size);
        int32_t same = 0;
        while (same < common && slices[i].blocks[same] == slices[0].blocks[same]) ++same;
        common = same;
    }
    const int64_t keys = static_cast<int64_t>(common) * shape_.block_size;
    return keys >= kLeastKeys && rows >= kSharedRows ? keys : 0;
}

}  // namespace rp
