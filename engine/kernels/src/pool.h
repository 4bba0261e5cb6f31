// A small thread pool: workers spin for a moment, then park. Not usable in a forked child.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace rp {

class Pool {
public:
    using Job = void (*)(void* context, int thread);

    explicit Pool(int num_threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int num_threads() const { return num_threads_; }

    // Run job as thread 0, and on every other thread that comes before thread 0 is done; returns
    // when none is inside. The job must not rely on all threads coming.
    void run(Job job, void* context);

private:
    void work(int thread);
    bool enter(uint64_t& seen);
    bool wait_for_job(uint64_t seen);
    bool is_new_job(uint64_t seen) const;

    const int num_threads_;
    // Number of the job, whether it is open for more threads, how many are inside.
    alignas(64) std::atomic<uint64_t> state_{0};
    std::atomic<bool> is_stopping_{false};
    Job job_ = nullptr;
    void* context_ = nullptr;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> threads_;
};

// Spin, then yield, until done() holds.
void relax(int round);

}  // namespace rp
