#include "pool.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace rp {
namespace {

constexpr int kSpinRounds = 4000;
constexpr int kParkRounds = 20000;

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
        generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    job(context, 0);
    barrier();
}

void Pool::barrier() {
    if (num_threads_ == 1) return;
    const uint32_t phase = phase_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == num_threads_ - 1) {
        arrived_.store(0, std::memory_order_relaxed);
        phase_.fetch_add(1, std::memory_order_release);
        return;
    }
    for (int round = 0; phase_.load(std::memory_order_acquire) == phase; ++round) relax(round);
}

bool Pool::wait_for_job(uint32_t seen) {
    for (int round = 0; round < kParkRounds; ++round) {
        if (generation_.load(std::memory_order_acquire) != seen) return true;
        if (is_stopping_.load(std::memory_order_relaxed)) return false;
        pause();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, [&] { return is_stopping_ || generation_ != seen; });
    return !is_stopping_;
}

void Pool::work(int thread) {
    for (uint32_t seen = 0; wait_for_job(seen); ++seen) {
        job_(context_, thread);
        barrier();
    }
}

}  // namespace rp
