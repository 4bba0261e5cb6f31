// Threads, scratch memory and plans of one model; runs programs step by step.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "plan.h"
#include "pool.h"
#include "worker.h"

namespace rp {

struct ContextSizes {
    int32_t num_threads;
    int32_t num_groups;
    int64_t scratch_bytes;   // of every thread
    int64_t partial_rows;    // (slot, row) pairs
    int64_t partial_floats;  // H * D of the widest layer
    int64_t num_heads;
};

class Context {
public:
    Context(const Table& table, const ContextSizes& sizes, const GroupShape* groups);

    void run(const RpOp* ops, int32_t num_ops, const RpStep& step);
    // has_parts: the bits of Q8_0 lie apart, as pack_parts.h says.
    void pack(int type, bool has_parts, const uint8_t* raw, int64_t rows, int64_t columns,
              uint8_t* out);

    const Table& table() const { return table_; }

private:
    // Of an operation: how many of its pieces are finished, and were taken of every thread's share.
    struct Progress {
        std::atomic<int64_t>& done;
        std::atomic<int64_t>* taken;
    };

    static void work(void* context, int thread);
    void work_on(const RpOp& op, const Progress& progress, const Worker& worker, int thread);
    Progress progress_of(size_t op);
    void clear_progress();
    Worker worker(int thread, const RpStep& step);
    void prepare_tail(const RpStep& step);

    const Table& table_;
    const ContextSizes sizes_;
    std::vector<GroupShape> groups_;
    std::vector<PlanBuilder> builders_;
    std::vector<Plan> plans_;
    std::vector<uint8_t> scratch_;
    std::vector<float> sums_;
    std::vector<float> stats_;
    std::vector<std::atomic<int64_t>> progress_;
    const RpOp* ops_ = nullptr;
    size_t num_ops_ = 0;
    const RpStep* step_ = nullptr;
    RpStep tail_step_{};  // of the selected rows alone
    std::vector<int32_t> tail_rows_;
    Pool pool_;  // last: its threads use everything above
};

}  // namespace rp
