#include "context.h"

#include <algorithm>
#include <numeric>

#include "gguf_blocks.h"
#include "pack.h"
#include "pack_parts.h"

namespace rp {
namespace {

constexpr int64_t kAlign = 64;

// Pieces that a thread takes at once: some runs for every thread, in case one loses its core.
int64_t run_of(const OpFunctions& functions, int64_t total, int32_t num_threads) {
    constexpr int64_t kRuns = 8;
    return functions.is_fine ? std::max<int64_t>(1, total / (kRuns * num_threads)) : 1;
}

// Pieces start..end-1 of an operation, `run` of which are taken at once.
struct Share {
    int64_t start, end, run;
};

void work_on_share(const OpFunctions& functions, const void* args, const Worker& worker,
                   const Share& share, std::atomic<int64_t>& taken, std::atomic<int64_t>& done) {
    const auto take = [&] {
        return share.start + taken.fetch_add(share.run, std::memory_order_relaxed);
    };
    for (int64_t first; (first = take()) < share.end;) {
        const int64_t last = std::min(share.end, first + share.run);
        for (int64_t piece = first; piece < last; ++piece) functions.work(args, worker, piece);
        done.fetch_add(last - first, std::memory_order_release);
    }
}

struct PackJob {
    std::atomic<int64_t> next{0};
    bool has_parts;
    int type;
    int lanes;
    const uint8_t* raw;
    int64_t rows;
    int64_t columns;
    uint8_t* out;
};

void pack_some(void* pointer, int) {
    PackJob& job = *static_cast<PackJob*>(pointer);
    const int64_t tiles = (job.rows + job.lanes - 1) / job.lanes;
    constexpr int64_t kRun = 16;
    for (int64_t first; (first = job.next.fetch_add(kRun)) < tiles;) {
        const int64_t last = std::min(tiles, first + kRun);
        if (job.has_parts)
            pack_parts(job.lanes, job.raw, job.rows, job.columns, first, last, job.out);
        else
            pack_tiles(job.type, job.lanes, job.raw, job.rows, job.columns, first, last, job.out);
    }
}

template <class Rows>
bool has_many_rows(const Rows& rows) {
    return rows.end - rows.start >= kDenseRows;
}

// Whether every sequence has so many rows that they are attended and multiplied together.
bool is_reading(const RpStep& step) {
    if (step.num_groups > 0)
        return std::all_of(step.slices[0], step.slices[0] + step.num_slices, has_many_rows<RpSlice>);
    return step.num_cells > 0 &&
           std::all_of(step.cells, step.cells + step.num_cells, has_many_rows<RpCell>);
}

}  // namespace

Context::Context(const Table& table, const ContextSizes& sizes, const GroupShape* groups)
    : table_(table),
      sizes_(sizes),
      groups_(groups, groups + sizes.num_groups),
      scratch_(static_cast<size_t>(sizes.scratch_bytes * sizes.num_threads + kAlign)),
      sums_(static_cast<size_t>(sizes.partial_rows * sizes.partial_floats)),
      stats_(static_cast<size_t>(sizes.partial_rows * sizes.num_heads * 2)),
      pool_(sizes.num_threads) {
    plans_.resize(groups_.size());
    for (size_t i = 0; i < groups_.size(); ++i)
        builders_.emplace_back(sizes.num_threads, sizes.partial_rows);
}

Worker Context::worker(int thread, const RpStep& step) {
    const auto base = reinterpret_cast<uintptr_t>(scratch_.data());
    const int64_t shift = static_cast<int64_t>((kAlign - base % kAlign) % kAlign);
    Worker worker{};
    worker.step = &step;
    worker.plans = plans_.data();
    worker.partials = {sums_.data(), stats_.data()};
    worker.scratch = scratch_.data() + shift + thread * sizes_.scratch_bytes;
    worker.num_threads = pool_.num_threads();
    worker.is_reading = is_reading(*step_);
    return worker;
}

// Every thread begins with a share of its own, whose pieces lie one behind the other in memory, and
// goes on with what is left of the others': one that lost its core does not hold up the rest unless
// it is in the middle of a piece. An operation is over when its pieces are done, whoever did them.
void Context::work_on(const RpOp& op, const Progress& progress, const Worker& worker, int thread) {
    const OpFunctions& functions = table_.ops[op.kind];
    const int64_t total = functions.count(op.args, worker);
    const int32_t threads = worker.num_threads;
    for (int32_t i = 0; i < threads; ++i) {
        const int32_t owner = (thread + i) % threads;
        const Share share{total * owner / threads, total * (owner + 1) / threads,
                          run_of(functions, total, threads)};
        work_on_share(functions, op.args, worker, share, progress.taken[owner], progress.done);
    }
    for (int round = 0; progress.done.load(std::memory_order_acquire) < total; ++round)
        relax(round);
}

Context::Progress Context::progress_of(size_t op) {
    std::atomic<int64_t>* counts = &progress_[op * (1 + static_cast<size_t>(pool_.num_threads()))];
    return {counts[0], counts + 1};
}

void Context::work(void* pointer, int thread) {
    Context& self = *static_cast<Context*>(pointer);
    const Worker workers[2] = {self.worker(thread, *self.step_),
                               self.worker(thread, self.tail_step_)};
    for (size_t i = 0; i < self.num_ops_; ++i)
        self.work_on(self.ops_[i], self.progress_of(i), workers[self.ops_[i].is_tail], thread);
}

// The step as operations after a selection see it.
void Context::prepare_tail(const RpStep& step) {
    tail_rows_.resize(static_cast<size_t>(step.num_logit_rows));
    std::iota(tail_rows_.begin(), tail_rows_.end(), 0);
    tail_step_ = step;
    tail_step_.num_rows = step.num_logit_rows;
    tail_step_.logit_rows = tail_rows_.data();
}

void Context::clear_progress() {
    const size_t size = num_ops_ * (1 + static_cast<size_t>(pool_.num_threads()));
    if (progress_.size() != size) progress_ = std::vector<std::atomic<int64_t>>(size);
    for (std::atomic<int64_t>& count : progress_) count.store(0, std::memory_order_relaxed);
}

void Context::run(const RpOp* ops, int32_t num_ops, const RpStep& step) {
    ops_ = ops;
    num_ops_ = static_cast<size_t>(num_ops);
    step_ = &step;
    prepare_tail(step);
    clear_progress();
    for (size_t i = 0; i < groups_.size() && step.num_groups > 0; ++i)
        plans_[i] = builders_[i].build(step, step.slices[i], groups_[i]);
    pool_.run(&Context::work, this);
}

void Context::pack(int type, bool has_parts, const uint8_t* raw, int64_t rows, int64_t columns,
                   uint8_t* out) {
    PackJob job;
    job.has_parts = has_parts;
    job.type = type;
    job.lanes = table_.lanes;
    job.raw = raw;
    job.rows = rows;
    job.columns = columns;
    job.out = out;
    pool_.run(&pack_some, &job);
}

}  // namespace rp
