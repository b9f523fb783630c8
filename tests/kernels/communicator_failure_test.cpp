// What happens when ranks die, hang or disagree: jobs of failing_ranks.cpp under mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/failing_job.h"

namespace hydraulis {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;

Ended run(const std::string& name) {
  return run_failing_job(3, HYDRAULIS_FAILING_RANKS " " + name);
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
