// What happens when a rank fails inside a step: jobs of failing_training.cpp under mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/failing_job.h"

namespace hydraulis {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

Ended run(const std::string& failure, int ranks, const std::string& strategy) {
  return run_failing_job(ranks, HYDRAULIS_FAILING_TRAINING " " + failure + " '" + strategy + "'");
}

/// Above the limit of 2 s that the jobs set, with time to start; far below the 300 s of a rank
/// that says nothing.
constexpr double kSoonSeconds = 50;

struct Laid {
  int ranks;
  const char* strategy;
};
constexpr Laid kLayouts[] = {
    {2, "2x(1,1,1)"}, {2, "(1,2,1)"}, {2, "(1,1,2)"}, {2, "(2,1,1)"}, {4, "(1,2,2)"}};

TEST(TrainingFailure, WithoutAFailureTheJobEndsWell) {
  for (const Laid& laid : kLayouts) {
    const Ended ended = run("none", laid.ranks, laid.strategy);
    EXPECT_EQ(ended.exit_code, 0) << laid.strategy << ended.output;
  }
}

TEST(TrainingFailure, ASilentRankIsGivenUpNamingStepAndInstruction) {
  for (const Laid& laid : kLayouts) {
    const Ended ended = run("silent", laid.ranks, laid.strategy);
    EXPECT_EQ(ended.exit_code, 7) << laid.strategy;
    EXPECT_LT(ended.seconds, kSoonSeconds) << laid.strategy;
    EXPECT_THAT(ended.output,
                ContainsRegex("CommunicationError: .*step 3, rank [023], stage [0-9], [a-z_]+.*"
                              "\\[instruction [0-9]+\\]"))
        << laid.strategy;
  }
}

TEST(TrainingFailure, ARankWithOtherTokensIsFoundOut) {
  for (const Laid& laid : {Laid{2, "(1,2,1)"}, Laid{2, "(1,1,2)"}, Laid{2, "(2,1,1)"}}) {
    const Ended ended = run("other_tokens", laid.ranks, laid.strategy);
    EXPECT_EQ(ended.exit_code, 7) << laid.strategy;
    EXPECT_LT(ended.seconds, kSoonSeconds) << laid.strategy;
    EXPECT_THAT(ended.output, ContainsRegex("CommunicationError: .*step 3, rank [01], stage [01], "
                                            "[a-z_]+.*\\[instruction [0-9]+\\]"))
        << laid.strategy;
  }
}

TEST(TrainingFailure, ARankThatThrowsEndsTheJobWithItsMessage) {
  for (const Laid& laid : {Laid{2, "2x(1,1,1)"}, Laid{4, "(1,2,2)"}}) {
    const Ended ended = run("throws", laid.ranks, laid.strategy);
    EXPECT_EQ(ended.exit_code, 8) << laid.strategy;
    EXPECT_LT(ended.seconds, kSoonSeconds) << laid.strategy;
    EXPECT_THAT(ended.output, HasSubstr("rank 1, step 3: tokens.bin: could not be read"))
        << laid.strategy;
  }
}

TEST(TrainingFailure, AKilledRankEndsTheJob) {
  for (const char* failure : {"killed", "killed_later"}) {
    const Ended ended = run(failure, 4, "(1,2,2)");
    EXPECT_NE(ended.exit_code, 0) << failure;
    EXPECT_LT(ended.seconds, kSoonSeconds) << failure;
    EXPECT_THAT(ended.output, AllOf(HasSubstr("rank 1"), HasSubstr("signal 9"))) << failure;
  }
}

TEST(TrainingFailure, ARankThatStopsAtAnyMomentIsGivenUpNamingTheStep) {
  for (const Laid& laid : kLayouts) {
    const Ended ended = run("stopped_later", laid.ranks, laid.strategy);
    EXPECT_EQ(ended.exit_code, 7) << laid.strategy;
    EXPECT_LT(ended.seconds, kSoonSeconds) << laid.strategy;
    EXPECT_THAT(ended.output, ContainsRegex("CommunicationError: .*step [0-9]+, rank [023]"))
        << laid.strategy << ended.output;
  }
}

}  // namespace
}  // namespace hydraulis
