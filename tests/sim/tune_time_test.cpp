#include "sim/tune_time.h"

#include <gtest/gtest.h>

#include "sim/iterations.h"
#include "tests/sim/small_model.h"

namespace hydraulis {
namespace {

using testing::pipeline_of;
using testing::small_model;

double sum(const TimeShares& time) {
  return time.compute + time.communication + time.bubble + time.waiting + time.unused;
}

// One micro-batch of 100 tokens takes 0.21 s a stage, so its pipeline of two stages ends after
// 0.42 s, each stage idle half of the time; the six devices of the other pipelines have no work.
TEST(TuneTime, BubbleAndWaitingAreToldApart) {
  BatchPlan plan;
  plan.pipelines = {pipeline_of(1, 2, {{100}}), pipeline_of(2, 1, {}), pipeline_of(2, 1, {}),
                    pipeline_of(2, 1, {})};
  IterationOptions options;
  options.costing.no_communication = true;
  const SimulatedIteration one = simulate_iteration(plan, small_model(), options);
  ASSERT_NEAR(one.result.time_seconds, 0.42, 1e-12);
  const TimeShares time = where_time_went(one.program, one.replay);
  EXPECT_NEAR(time.compute, 0.21 * 2 / 8, 1e-12);
  EXPECT_NEAR(time.bubble, 0.21 * 2 / 8, 1e-12);
  EXPECT_NEAR(time.waiting, 0.42 * 6 / 8, 1e-12);
  EXPECT_NEAR(time.communication, 0, 1e-12);
  EXPECT_NEAR(time.unused, 0, 1e-12);
}

TEST(TuneTime, DevicesWithoutAStageAreUnusedAllTheTime) {
  BatchPlan plan;
  plan.pipelines = {pipeline_of(2, 1, {{100}}), pipeline_of(2, 1, {{50}})};
  IterationOptions options;
  options.costing.no_communication = true;
  const SimulatedIteration one = simulate_iteration(plan, small_model(), options);
  const TimeShares time = where_time_went(one.program, one.replay);
  EXPECT_NEAR(time.unused, one.result.time_seconds / 2, 1e-12);
  EXPECT_NEAR(time.bubble, 0, 1e-12);
  // 50 tokens: 0.0025 + 0.05 + 0.1 s, 0.21 s in the other pipeline.
  EXPECT_NEAR(time.waiting, (0.21 - 0.1525) / 4, 1e-12);
}

TEST(TuneTime, WithCommunicationThePartsAddUpToTheIteration) {
  BatchPlan plan;
  plan.pipelines = {pipeline_of(1, 4, {{100}, {900, 20}, {300}}), pipeline_of(1, 2, {{2000}, {7}}),
                    pipeline_of(2, 1, {{64}})};
  const SimulatedIteration one = simulate_iteration(plan, small_model());
  const TimeShares time = where_time_went(one.program, one.replay);
  EXPECT_NEAR(sum(time), one.result.time_seconds, 1e-9 * one.result.time_seconds);
  EXPECT_NEAR(time.communication, one.result.exposed_communication_seconds, 1e-12);
  EXPECT_NEAR(time.bubble + time.waiting + time.unused,
              one.result.bubble_share * one.result.time_seconds, 1e-9);
  for (const double part : {time.compute, time.bubble, time.waiting}) EXPECT_GT(part, 0);
}

}  // namespace
}  // namespace hydraulis
