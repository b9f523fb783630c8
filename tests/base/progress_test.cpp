#include "base/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
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

std::string read_waiting(int fd) {
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string text(65536, '\0');
  const ssize_t count = ::read(fd, text.data(), text.size());
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return text;
}

void work() {
  Progress progress("reading", 100, "lines");
  for (const std::uint64_t done : {10u, 20u, 50u, 51u, 150u}) {
    if (done == 50 || done == 150) std::this_thread::sleep_for(std::chrono::milliseconds(110));
    progress.update(done);
  }
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
  EXPECT_EQ(text.find("51 %"), std::string::npos) << "drawn more than ten times a second";
  const std::string wipe = "\r\x1b[K";
  ASSERT_GE(text.size(), wipe.size());
  EXPECT_EQ(text.substr(text.size() - wipe.size()), wipe);
  ::close(screen);
  ::close(terminal);
}

}  // namespace
}  // namespace hydraulis
