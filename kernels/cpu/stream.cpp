#include "kernels/cpu/stream.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "kernels/communicator.h"

namespace hydraulis::cpu {

namespace {

// Never destroyed: what is still under way when the process ends may be written to by peers.
std::vector<std::shared_ptr<Pending>>& under_way() {
  static auto& list = *new std::vector<std::shared_ptr<Pending>>;
  return list;
}

/// Gives the core away between two looks: at once to whoever is ready to run, and after a while,
/// when the peer is evidently not about to answer, for longer and longer up to 50 µs.
class Backoff {
 public:
  void pause() {
    ++looks_;
    if (looks_ <= kSpins) return;
    if (looks_ <= kYields) {
      sched_yield();
      return;
    }
    const timespec sleep{0, nanoseconds_};
    nanosleep(&sleep, nullptr);
    nanoseconds_ = std::min(nanoseconds_ * 2, 50'000L);
  }

 private:
  static constexpr int kSpins = 20;
  static constexpr int kYields = 500;
  int looks_ = 0;
  long nanoseconds_ = 1'000;
};

}  // namespace

double now_seconds() {
  using Clock = std::chrono::steady_clock;
  static const Clock::time_point first = Clock::now();
  return std::chrono::duration<double>(Clock::now() - first).count();
}

void Pending::move_on() noexcept {
  try {
    if (advance()) {
      ended_ = true;
      ended_seconds_ = now_seconds();
    }
  } catch (...) {
    failure_ = std::current_exception();
    cancel();
  }
}

bool Pending::test() {
  if (!ended_ && failure_ == nullptr) progress();
  if (ended_) return true;
  if (failure_ == nullptr) {
    // A pause of more than a second between two looks was spent on something else than waiting.
    const double now = now_seconds();
    if (asked_seconds_ >= 0) waited_seconds_ += std::min(now - asked_seconds_, 1.0);
    asked_seconds_ = now;
    if (waited_seconds_ <= timeout_seconds()) return false;
    failure_ = std::make_exception_ptr(CommunicationError(overdue(waited_seconds_)));
    cancel();
  }
  std::rethrow_exception(failure_);
}

void start(std::shared_ptr<Pending> pending) {
  pending->move_on();
  if (!pending->ended_ && pending->failure_ == nullptr) under_way().push_back(std::move(pending));
}

void progress() {
  auto& list = under_way();
  for (auto& pending : list) {
    if (pending->failure_ == nullptr) pending->move_on();
  }
  std::erase_if(list, [](const auto& p) { return p->ended_ || p->failure_ != nullptr; });
}

bool communicating() { return !under_way().empty(); }

void wait_for(Pending& pending) {
  Backoff backoff;
  while (!pending.test()) backoff.pause();
}

void CpuStream::add(std::shared_ptr<Pending> pending) {
  std::erase_if(pending_, [](const auto& p) { return p->ended(); });
  pending_.push_back(std::move(pending));
}

void CpuStream::drain() {
  for (auto& pending : pending_) wait_for(*pending);
  pending_.clear();
}

}  // namespace hydraulis::cpu
