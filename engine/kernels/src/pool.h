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

    // Run job on every thread, the caller being thread 0; returns when all are done.
    void run(Job job, void* context);

    // Wait inside a job until every thread is here.
    void barrier();

private:
    void work(int thread);
    bool wait_for_job(uint32_t seen);

    const int num_threads_;
    alignas(64) std::atomic<uint32_t> generation_{0};
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<uint32_t> phase_{0};
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
