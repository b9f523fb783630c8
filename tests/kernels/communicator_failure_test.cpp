// What happens when ranks die, hang or disagree: jobs of failing_ranks.cpp under mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace hydraulis {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;

struct Ended {
  int exit_code = 0;  ///< minus the signal's number if it ended by one
  double seconds = 0;
  std::string output;
};

/// Processes whose command line holds this text.
int processes_with(const std::string& text) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    const std::string line{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (line.find(text) != std::string::npos) ++found;
  }
  return found;
}

/// Runs the case on three ranks and checks that nothing of it is left.
Ended run(const std::string& name) {
  const std::string mark = "failing_case_of_" + std::to_string(getpid());
  const std::string command = std::string("exec " HYDRAULIS_SOURCE_DIR "/tests/mpirun.sh 3 ") +
                              HYDRAULIS_FAILING_RANKS " " + name + " " + mark + " 2>&1";
  const auto start = std::chrono::steady_clock::now();
  Ended ended;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return ended;
  char block[4096];
  for (std::size_t n = 0; (n = fread(block, 1, sizeof(block), pipe)) > 0;) {
    ended.output.append(block, n);
  }
  const int status = pclose(pipe);
  ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // mpirun may return a moment before the last process it has killed is gone.
  for (int i = 0; i < 50 && processes_with(mark) > 0; ++i) usleep(100'000);
  EXPECT_EQ(processes_with(mark), 0) << name;
  return ended;
}

/// Far below the sleep of 300 s of ranks that never come, and below the limit of 60 s that waits
/// would end by: the failure itself was noticed. Generous to slow machines.
constexpr double kSoonSeconds = 40;

TEST(CommunicatorFailure, RanksThatNeverComeAreNamedAfterTheTimeLimit) {
  for (const std::string what : {"barrier", "all_reduce", "subgroup", "exchange"}) {
    const Ended ended = run("silent_in_" + what);
    EXPECT_EQ(ended.exit_code, 7) << what;
    EXPECT_LT(ended.seconds, kSoonSeconds) << what;
    EXPECT_GT(ended.seconds, 1) << what;
    EXPECT_THAT(
        ended.output,
        ContainsRegex("CommunicationError: rank [02]: .*gave up after [12]\\.[0-9] s.*rank 1"))
        << what;
  }
}

TEST(CommunicatorFailure, CollectivesThatDoNotMatchAreFoundOut) {
  struct Case {
    const char* name;
    const char* message;
  };
  for (const Case c :
       {Case{"different_count", "count 11"}, Case{"different_large_count", "count 3000000"},
        Case{"different_operation", "all-gather"}, Case{"different_order", "number 1"},
        Case{"different_root", "broadcast"}}) {
    const Ended ended = run(c.name);
    EXPECT_EQ(ended.exit_code, 7) << c.name;
    EXPECT_LT(ended.seconds, kSoonSeconds) << c.name;
    // Rank 0 gets the signature of rank 2, which is right; it may be the first to see a wrong
    // length.
    EXPECT_THAT(ended.output, AnyOf(AllOf(HasSubstr("does not match"), HasSubstr(c.message)),
                                    ContainsRegex("rank 0: .*the message from rank 1 .*expected")))
        << c.name;
  }
}

TEST(CommunicatorFailure, SubgroupsThatDoNotMatchAreFoundOut) {
  const Ended ended = run("different_subgroup");
  EXPECT_EQ(ended.exit_code, 7);
  EXPECT_LT(ended.seconds, kSoonSeconds);
  EXPECT_THAT(ended.output, HasSubstr("makes another one now"));
}

TEST(CommunicatorFailure, MessagesOfAnotherLengthAreFoundOut) {
  const Ended longer = run("too_long");
  EXPECT_EQ(longer.exit_code, 7);
  EXPECT_LT(longer.seconds, kSoonSeconds);
  EXPECT_THAT(longer.output,
              HasSubstr("rank 1: exchange of 1 messages on channel ring: the message "
                        "from rank 0 is longer than the 60 bytes expected"));
  const Ended far = run("too_long_by_far");
  EXPECT_EQ(far.exit_code, 7);
  EXPECT_LT(far.seconds, kSoonSeconds);
  EXPECT_THAT(far.output, HasSubstr("is longer than the 2500000 bytes expected"));
  const Ended shorter = run("too_short");
  EXPECT_EQ(shorter.exit_code, 7);
  EXPECT_LT(shorter.seconds, kSoonSeconds);
  EXPECT_THAT(shorter.output, HasSubstr("has 60 bytes, 100 were expected"));
}

TEST(CommunicatorFailure, ARankThatDiesEndsTheJob) {
  for (const char* name : {"killed", "killed_later", "uncaught"}) {
    const Ended ended = run(name);
    EXPECT_NE(ended.exit_code, 0) << name;
    EXPECT_LT(ended.seconds, kSoonSeconds) << name;
  }
}

TEST(CommunicatorFailure, ARankThatThrowsEndsTheJob) {
  const Ended ended = run("throws");
  EXPECT_EQ(ended.exit_code, 8);
  EXPECT_LT(ended.seconds, kSoonSeconds);
  EXPECT_THAT(ended.output, HasSubstr("rank 1: a file could not be read"));
}

TEST(CommunicatorFailure, LeavingMainAfterAFailureDoesNotHangInMpi) {
  const Ended ended = run("returns");
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_LT(ended.seconds, kSoonSeconds);
  EXPECT_THAT(ended.output, HasSubstr("returns"));
}

}  // namespace
}  // namespace hydraulis
