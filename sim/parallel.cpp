#include "sim/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr int kMostThreads = 1024;

/// Indices are handed out in order and none after a failure, so the lowest one that fails is always
/// among those that ran.
class Queue {
 public:
  Queue(std::size_t count, const std::function<void(std::size_t)>& work)
      : count_(count), work_(work) {}

  void run() {
    while (!failed_) {
      const std::size_t index = next_++;
      if (index >= count_) return;
      try {
        work_(index);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        failed_ = true;
        if (error_ && error_index_ < index) continue;
        error_ = std::current_exception();
        error_index_ = index;
      }
    }
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  const std::size_t count_;
  const std::function<void(std::size_t)>& work_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
  std::size_t error_index_ = 0;
};

}  // namespace

void for_each_index(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
  if (threads < 1 || threads > kMostThreads) {
    throw InputError("threads: {}; expected a number in [1, {}]", threads, kMostThreads);
  }
  Queue queue(count, work);
  const std::size_t others =
      std::min<std::size_t>(static_cast<std::size_t>(threads), std::max<std::size_t>(count, 1)) - 1;
  {
    std::vector<std::jthread> workers;
    for (std::size_t t = 0; t < others; ++t) workers.emplace_back([&queue] { queue.run(); });
    queue.run();
  }
  queue.rethrow();
}

}  // namespace hydraulis
