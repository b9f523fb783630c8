#include "sim/memory_timeline.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/iterations.h"
#include "tests/sim/small_model.h"

namespace hydraulis {
namespace {

using testing::pipeline_of;
using testing::small_model;

TEST(MemoryTimeline, ItsPeaksAreTheHighWaterMarksOfEverySchedule) {
  CostModel model = small_model();
  model.model.layers = model.profile.model.layers = 15;
  model.memory = MemoryModel::composed;
  BatchPlan plan;
  plan.pipelines = {pipeline_of(1, 4, {{700}, {300}, {900}, {100}, {500}}),
                    pipeline_of(2, 1, {{800}, {200}})};
  for (const ScheduleChoice& choice :
       {ScheduleChoice{}, ScheduleChoice{Schedule::gpipe, 1},
        ScheduleChoice{Schedule::interleaved, 3}, ScheduleChoice{Schedule::zero_bubble_h1, 1}}) {
    IterationOptions options;
    options.lowering = choice;
    options.check_memory = false;
    const auto one = simulate_iteration(plan, model, options);
    const auto timeline = memory_timeline(one.program, one.replay, model);
    ASSERT_EQ(timeline.size(), one.program.stages.size());
    for (std::size_t s = 0; s < timeline.size(); ++s) {
      double most = 0;
      double before = 0;
      for (const MemoryPoint& point : timeline[s]) {
        EXPECT_GE(point.seconds, before);
        before = point.seconds;
        most = std::max(most, point.memory.total());
      }
      // High-water marks count whole tokens.
      const double mark = one.replay.stages[s].memory_bytes;
      EXPECT_NEAR(most, mark, 1e-3 * mark) << to_string(choice) << " stage " << s;
      EXPECT_NEAR(timeline[s].front().memory.activations, 0, 1e-9);
      EXPECT_NEAR(timeline[s].back().memory.activations, 0, 1e-3);
    }
    const MemoryPeak peak = memory_peak(timeline);
    EXPECT_NEAR(peak.point.memory.total(), one.result.memory_bytes, 1e-3 * one.result.memory_bytes);
  }
}

TEST(MemoryTimeline, ByHand) {
  CostModel model = small_model();
  model.memory = MemoryModel::composed;
  BatchPlan plan;
  plan.pipelines = {pipeline_of(2, 1, {{1000}, {400}})};
  IterationOptions options;
  options.costing.no_communication = true;
  options.check_memory = false;
  const auto one = simulate_iteration(plan, model, options);
  const auto timeline = memory_timeline(one.program, one.replay, model);
  ASSERT_EQ(timeline[0].size(), 5u);
  // 1e-6·1000² + 1 + 0.1 = 2.1 s, then the other.
  EXPECT_NEAR(timeline[0][2].seconds, 2.1, 1e-9);
  EXPECT_NEAR(timeline[0][3].seconds, 2.1, 1e-9);
  const double a_token = timeline[0][1].memory.activations / 1000;
  EXPECT_GT(a_token, 0);
  EXPECT_NEAR(timeline[0][3].memory.activations, 400 * a_token, 1e-9 * 400 * a_token);
  EXPECT_EQ(memory_peak(timeline).point.seconds, 0);
}

}  // namespace
}  // namespace hydraulis
