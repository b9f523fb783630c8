#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace hydraulis {

Progress::Progress(std::string label, std::uint64_t total, std::string unit)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      total_(total),
      on_terminal_(::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (on_terminal_) fmt::print(stderr, "\r\x1b[K");
}

void Progress::update(std::uint64_t done) {
  if (!on_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (total_ == 0) {
    fmt::print(stderr, "\r\x1b[K{} {} {} ({:.0f} s)", label_, done, unit_, seconds);
  } else {
    constexpr int kWidth = 30;
    const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
    const int filled = static_cast<int>(share * kWidth);
    const double left = share > 0 ? seconds / share - seconds : 0;
    fmt::print(stderr, "\r\x1b[K{} [{:#<{}}{:.<{}}] {:3.0f} % ({:.0f} s left)", label_, "", filled,
               "", kWidth - filled, 100 * share, left);
  }
  std::fflush(stderr);
}

}  // namespace hydraulis
