#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/communicator.h"

// Ranks as threads of one process, as the emulated NCCL has them: what they agree on in host memory
// goes from thread to thread.
namespace hydraulis::test {

class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : brought_(static_cast<std::size_t>(size)) {}
  int size() const { return static_cast<int>(brought_.size()); }

  /// What every rank brings, by rank, once all have come.
  std::vector<std::vector<char>> exchange(int rank, const void* data, std::int64_t bytes) {
    const auto* begin = static_cast<const char*>(data);
    brought_[static_cast<std::size_t>(rank)].assign(begin, begin + bytes);
    barrier();
    auto all = brought_;
    barrier();
    return all;
  }
  void barrier() {
    std::unique_lock lock(mutex_);
    const std::uint64_t mine = round_;
    if (++arrived_ == size()) {
      arrived_ = 0;
      ++round_;
      all_.notify_all();
    }
    all_.wait(lock, [&] { return round_ != mine || ended_; });
    if (round_ == mine) throw CommunicationError("another rank has failed");
  }
  /// A rank has failed: nobody waits for it.
  void end() {
    const std::lock_guard guard(mutex_);
    ended_ = true;
    all_.notify_all();
    for (const auto& [key, group] : subgroups_) group->end();
  }
  std::shared_ptr<ThreadGroup> subgroup(const std::vector<int>& ranks, std::uint64_t which) {
    const std::lock_guard guard(mutex_);
    auto& group = subgroups_[{ranks, which}];
    if (group == nullptr) group = std::make_shared<ThreadGroup>(static_cast<int>(ranks.size()));
    return group;
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  int arrived_ = 0;
  std::uint64_t round_ = 0;
  bool ended_ = false;
  std::vector<std::vector<char>> brought_;
  std::map<std::pair<std::vector<int>, std::uint64_t>, std::shared_ptr<ThreadGroup>> subgroups_;
};

/// The host's side of a rank: collectives on host memory, done when the call returns.
class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  std::unique_ptr<Communicator> subgroup(std::span<const int> ranks) override {
    const std::vector<int> list(ranks.begin(), ranks.end());
    const auto own = std::find(list.begin(), list.end(), rank_) - list.begin();
    return std::make_unique<ThreadCommunicator>(group_->subgroup(list, made_[list]++),
                                                static_cast<int>(own));
  }
  void barrier() override { group_->barrier(); }
  double timeout_seconds() const override { return timeout_; }
  void set_timeout_seconds(double seconds) override { timeout_ = seconds; }
  const Traffic& traffic() const override { return traffic_; }
  void reset_traffic() override {}
  [[noreturn]] void abort(int exit_code) override { std::_Exit(exit_code); }

  void broadcast(void* buffer, std::int64_t bytes, int root, Stream&) override {
    const auto all = group_->exchange(rank_, buffer, root == rank_ ? bytes : 0);
    copy(all[static_cast<std::size_t>(root)], buffer);
  }
  void all_gather(const void* input, void* output, std::int64_t count, DataType type,
                  Stream&) override {
    const std::int64_t bytes = count * size_of(type);
    auto* to = static_cast<char*>(output);
    for (const auto& part : group_->exchange(rank_, input, bytes)) {
      copy(part, to);
      to += bytes;
    }
  }
  void all_reduce(void* buffer, std::int64_t count, DataType type, Reduction reduction,
                  Stream&) override {
    if (type != DataType::f64) never();
    const auto all = group_->exchange(rank_, buffer, count * 8);
    for (std::int64_t i = 0; i < count; ++i) {
      double result = number(all[0], i);
      for (std::size_t r = 1; r < all.size(); ++r) {
        const double value = number(all[r], i);
        result = reduction == Reduction::sum ? result + value : std::max(result, value);
      }
      static_cast<double*>(buffer)[i] = result;
    }
  }
  void reduce_scatter(const void*, void*, std::int64_t, DataType, Stream&) override { never(); }
  void all_to_all_v(const void*, std::span<const std::int64_t>, std::span<const std::int64_t>,
                    void*, std::span<const std::int64_t>, std::span<const std::int64_t>,
                    Stream&) override {
    never();
  }
  void exchange(std::span<const Message>, Channel, Stream&) override { never(); }

 private:
  [[noreturn]] static void never() { throw std::logic_error("the host's side is not used so"); }
  static void copy(const std::vector<char>& from, void* to) {
    std::copy(from.begin(), from.end(), static_cast<char*>(to));
  }
  static double number(const std::vector<char>& part, std::int64_t i) {
    double value = 0;
    std::memcpy(&value, part.data() + 8 * i, 8);
    return value;
  }
  std::shared_ptr<ThreadGroup> group_;
  int rank_;
  std::map<std::vector<int>, std::uint64_t> made_;
  double timeout_ = 60;
  Traffic traffic_;
};

/// Runs a program on every rank, each in a thread, and returns what they threw: nothing, where all
/// went well. Those that a failed one leaves waiting in the host's collectives throw too.
inline std::vector<std::string> run_ranks(
    int ranks, const std::function<void(std::shared_ptr<ThreadCommunicator>)>& program) {
  const auto group = std::make_shared<ThreadGroup>(ranks);
  std::vector<std::string> thrown(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        program(std::make_shared<ThreadCommunicator>(group, r));
      } catch (const std::exception& e) {
        thrown[static_cast<std::size_t>(r)] = e.what();
        group->end();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

}  // namespace hydraulis::test
