#include "pool.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace rp {
namespace {

constexpr int kSpinRounds = 4000;
constexpr int kParkRounds = 20000;
constexpr uint64_t kOpen = 1u << 16;
constexpr uint64_t kInside = kOpen - 1;
constexpr uint64_t kJob = kOpen << 1;

void pause() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

// A thread that waits longer than the spin has lost its core to somebody: give ours away too.
void relax(int round) {
    if (round < kSpinRounds)
        pause();
    else
        std::this_thread::yield();
}

Pool::Pool(int num_threads) : num_threads_(num_threads < 1 ? 1 : num_threads) {
    for (int i = 1; i < num_threads_; ++i) threads_.emplace_back(&Pool::work, this, i);
}

Pool::~Pool() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        is_stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Pool::run(Job job, void* context) {
    if (num_threads_ == 1) return job(context, 0);
    job_ = job;
    context_ = context;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        state_.fetch_add(kJob | kOpen, std::memory_order_release);
    }
    wake_.notify_all();
    job(context, 0);
    state_.fetch_and(~kOpen, std::memory_order_acq_rel);
    for (int round = 0; state_.load(std::memory_order_acquire) & kInside; ++round) relax(round);
}

bool Pool::is_new_job(uint64_t seen) const {
    const uint64_t state = state_.load(std::memory_order_acquire);
    return (state & kOpen) && state / kJob != seen;
}

bool Pool::wait_for_job(uint64_t seen) {
    for (int round = 0; round < kParkRounds; ++round) {
        if (is_new_job(seen)) return true;
        if (is_stopping_.load(std::memory_order_relaxed)) return false;
        pause();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, [&] { return is_stopping_ || is_new_job(seen); });
    return !is_stopping_;
}

// Join the open job, unless it was closed in the meantime.
bool Pool::enter(uint64_t& seen) {
    uint64_t state = state_.load(std::memory_order_acquire);
    do {
        if (!(state & kOpen)) return false;
    } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel));
    seen = state / kJob;
    return true;
}

void Pool::work(int thread) {
    uint64_t seen = 0;
    while (wait_for_job(seen)) {
        if (!enter(seen)) continue;
        job_(context_, thread);
        state_.fetch_sub(1, std::memory_order_release);
    }
}

}  // namespace rp
