#include "runtime/stop_signal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <string>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr double kLongestGrace = 1e6;  ///< seconds

std::atomic<bool> requested = false;
std::atomic<unsigned> grace = 0;  ///< whole seconds
std::string last_words;           ///< made beforehand: a handler may only write

/// Two places for the position's line: one is written while a handler may read the other.
struct Position {
  std::array<char, 256> text;
  std::size_t size = 0;
};
std::array<Position, 2> positions;
std::atomic<int> current = -1;

void write_error(const char* text, std::size_t size) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, size);
}

extern "C" void on_stop_signal(int) {
  if (requested.exchange(true)) return;
  alarm(grace.load());
  const int at = current.load();
  if (at >= 0) write_error(positions[at].text.data(), positions[at].size);
}

extern "C" void on_grace_over(int) {
  write_error(last_words.data(), last_words.size());
  ::_exit(static_cast<int>(ExitCode::internal));
}

}  // namespace

void set_stop_grace(double seconds) {
  grace = static_cast<unsigned>(std::ceil(std::clamp(seconds, 1.0, kLongestGrace)));
}

void catch_stop_signals(int rank, double grace_seconds) {
  static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
                std::atomic<unsigned>::is_always_lock_free);
  set_stop_grace(grace_seconds);
  last_words = fmt::format(
      "hydraulis: error: rank {}: asked to stop, but the step did not end in time; no checkpoint "
      "of it\n",
      rank);
  struct sigaction action = {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  action.sa_handler = on_grace_over;
  sigaction(SIGALRM, &action, nullptr);
  action.sa_handler = on_stop_signal;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaction(signal, &action, nullptr);
}

void set_position(std::string_view text) {
  const int next = current.load() == 0 ? 1 : 0;
  Position& position = positions[next];
  const auto end = fmt::format_to_n(position.text.data(), position.text.size(),
                                    "hydraulis: {}: asked to stop\n", text);
  position.size = std::min(end.size, position.text.size());
  current = next;
}

bool stop_requested() { return requested; }

void stop_agreed() { alarm(0); }

}  // namespace hydraulis
