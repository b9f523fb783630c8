#include "cli/line_printer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>

namespace hydraulis {
namespace {

constexpr std::size_t kMostWaiting = 100'000;

/// The error number, 0 if all was written.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

}  // namespace

/// Shared with the thread, which may be held in a write when everyone else is gone.
struct LinePrinter::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> waiting;
  bool writing = false;
  bool closed = false;
  std::int64_t dropped = 0;
  int error = 0;

  void run(int descriptor) {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return closed || !waiting.empty(); });
      if (closed) return;
      const std::string text = std::move(waiting.front());
      waiting.pop_front();
      writing = true;
      lock.unlock();
      const int failed = write_all(descriptor, text);
      lock.lock();
      writing = false;
      if (failed != 0) {
        error = failed;
        closed = true;
        waiting.clear();
      }
      changed.notify_all();
    }
  }
};

LinePrinter::LinePrinter(int descriptor) : state_(std::make_shared<State>()) {
  std::thread([state = state_, descriptor] { state->run(descriptor); }).detach();
}

LinePrinter::~LinePrinter() {
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  state_->changed.notify_all();
}

void LinePrinter::print(std::string text) {
  const std::lock_guard lock(state_->mutex);
  if (state_->closed) return;
  if (state_->waiting.size() >= kMostWaiting) {
    ++state_->dropped;
    return;
  }
  state_->waiting.push_back(std::move(text));
  state_->changed.notify_all();
}

std::string LinePrinter::finish(double most_seconds) {
  std::unique_lock lock(state_->mutex);
  const bool done = state_->changed.wait_for(
      lock, std::chrono::duration<double>(most_seconds),
      [&] { return state_->closed || (state_->waiting.empty() && !state_->writing); });
  const int error = state_->error;
  if (error != 0)
    return error == EPIPE ? "" : fmt::format("cannot write: {}", std::strerror(error));
  const auto left = static_cast<std::int64_t>(state_->waiting.size()) + (state_->writing ? 1 : 0);
  const std::int64_t lost = state_->dropped + (done ? 0 : left);
  return lost == 0 ? "" : fmt::format("{} lines were not read in time", lost);
}

}  // namespace hydraulis
