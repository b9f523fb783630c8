#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "planner/policies/policies.h"
#include "planner/program/lower.h"
#include "planner/program/verify.h"
#include "tests/planner/policies/small_setup.h"

namespace hydraulis {
namespace {

using test::batch_of;
using test::lengths_of;
using test::row;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Four devices. Two together hold half as much but are quick with short sequences; one alone holds
/// long ones and is slow.
PolicySetup setup(std::int64_t context, std::span<const Batch> batches) {
  PolicySetup result =
      test::small_setup(4, context, {row(1, 1, 0, 4e-3, 0), row(2, 1, 0, 1e-4, 0)}, batches);
  result.model.profile.memory.activation_bytes_by_tp[2] = 4;
  return result;
}

TEST(HotSpa, LongAndShortSequencesAreTrainedInPhasesOfTheirOwnLayout) {
  const std::vector<Batch> batches = {
      batch_of({6000, 300, 300, 300, 300}),
      batch_of({300, 300, 200, 100}),
  };
  const auto policy = make_hotspa(setup(6400, batches));
  EXPECT_THAT(policy->remark(), HasSubstr("2x(1,2,1)"));
  EXPECT_THAT(policy->remark(), HasSubstr("4x(1,1,1)"));
  // The longest bucket's layout holds the optimizer.
  EXPECT_EQ(policy->cost_model().optimizer.tp, 1);
  const BatchPlan both = policy->plan(batches);
  ASSERT_EQ(both.phases(), 2);
  for (const PipelinePlan& pipeline : both.pipelines) {
    EXPECT_EQ(pipeline.scheme.tp, pipeline.phase == 0 ? 2 : 1);
    for (const MicroBatch& micro_batch : pipeline.micro_batches) {
      for (const std::uint32_t length : micro_batch.lengths) {
        EXPECT_EQ(length > 3200, pipeline.phase == 1);
      }
    }
  }
  // Seconds of the phases add up: 6,000 tokens alone take 24 s.
  double slowest = 0;
  for (const PipelinePlan& pipeline : both.pipelines) {
    if (pipeline.phase == 0) slowest = std::max(slowest, pipeline.time_seconds);
  }
  EXPECT_DOUBLE_EQ(both.makespan_seconds, 24 + slowest);
  EXPECT_THAT(verify(lower(both, policy->cost_model()), policy->cost_model(), &batches[0]),
              IsEmpty());
  // Without a long sequence there is nothing to switch to.
  const BatchPlan short_ones = policy->plan(std::span(batches).subspan(1));
  EXPECT_EQ(short_ones.phases(), 1);
  EXPECT_EQ(short_ones.pipelines.size(), 2u);
  EXPECT_THAT(verify(lower(short_ones, policy->cost_model()), policy->cost_model(), &batches[1]),
              IsEmpty());
}

TEST(HotSpa, ASwitchThatCostsMoreThanItGainsIsNotMade) {
  const std::vector<Batch> batches = {batch_of({6000, 300, 300, 300, 300})};
  PolicySetup costly = setup(6400, batches);
  costly.assignment.count_parameter_traffic = true;
  const auto policy = make_hotspa(costly);
  EXPECT_EQ(policy->plan(batches).phases(), 1) << policy->remark();
}

TEST(HotSpa, NothingIsLeftOutSilently) {
  const std::vector<Batch> batches = {batch_of({300, 300}), batch_of({300, 6401})};
  const auto policy = make_hotspa(setup(6400, std::span(batches).first(1)));
  EXPECT_THROW(policy->plan(std::span(batches).subspan(1)), InfeasibleError);
}

TEST(HotSpa, ContextThatNothingHoldsNamesTheLongest) {
  const std::vector<Batch> batches = {batch_of({100})};
  try {
    make_hotspa(setup(100'000, batches));
    FAIL() << "expected InfeasibleError";
  } catch (const InfeasibleError& error) {
    EXPECT_THAT(error.what(), HasSubstr("100000"));
    EXPECT_THAT(error.what(), HasSubstr("the longest is 3"));
  }
}

}  // namespace
}  // namespace hydraulis
