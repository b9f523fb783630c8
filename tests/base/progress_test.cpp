#include "base/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

namespace hydraulis {
namespace {

/// Runs `action` with standard error on `target` and puts the old one back.
template <typename Action>
void with_stderr_on(int target, Action&& action) {
  std::fflush(stderr);
  const int saved = ::dup(STDERR_FILENO);
  ::dup2(target, STDERR_FILENO);
  action();
  std::fflush(stderr);
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
}

/// All that waits to be read; a terminal hands it out in pieces, some a moment late.
std::string read_waiting(int fd) {
  std::string text;
  pollfd waiting{fd, POLLIN, 0};
  while (::poll(&waiting, 1, 50) > 0 && (waiting.revents & POLLIN) != 0) {
    char block[4096];
    const ssize_t count = ::read(fd, block, sizeof block);
    if (count <= 0) break;
    text.append(block, static_cast<std::size_t>(count));
  }
  return text;
}

void wait_for_next_drawing() { std::this_thread::sleep_for(std::chrono::milliseconds(110)); }

void work() {
  Progress progress("reading", 100, "lines");
  wait_for_next_drawing();
  progress.update(50);
  wait_for_next_drawing();
  progress.update(150);
}

TEST(Progress, IsSilentWhereNobodyWatches) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  with_stderr_on(ends[1], work);
  EXPECT_EQ(read_waiting(ends[0]), "");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Progress, DrawsABarOnATerminalAndWipesIt) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) {
    GTEST_SKIP() << "no pseudo-terminals here";
  }
  const int screen = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  ASSERT_GE(screen, 0);
  with_stderr_on(screen, work);
  const std::string text = read_waiting(terminal);
  EXPECT_NE(text.find("reading [###############...............]  50 %"), std::string::npos) << text;
  EXPECT_NE(text.find("100 %"), std::string::npos) << text;  // more than the total is full
  const std::string wipe = "\r\x1b[K";
  ASSERT_GE(text.size(), wipe.size());
  EXPECT_EQ(text.substr(text.size() - wipe.size()), wipe);

  const auto start = std::chrono::steady_clock::now();
  with_stderr_on(screen, [] {
    Progress progress("counting", 0);
    for (std::uint64_t done = 0; done < 1000; ++done) progress.update(done);
  });
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const std::string counted = read_waiting(terminal);
  std::size_t drawings = 0;
  for (std::size_t at = 0; (at = counted.find("counting", at)) != std::string::npos; ++at) {
    ++drawings;
  }
  EXPECT_LE(static_cast<double>(drawings), 10 * elapsed.count()) << "over ten times a second";
  ::close(screen);
  ::close(terminal);
}

}  // namespace
}  // namespace hydraulis
