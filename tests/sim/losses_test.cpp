// Where device time goes, what waits for what, and how often memory runs out.
#include "sim/losses.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "sim/critical_path.h"
#include "sim/iterations.h"
#include "tests/sim/small_model.h"

namespace hydraulis {
namespace {

using testing::pipeline_of;
using testing::small_model;

/// b seconds a token on every scheme, nothing else.
CostModel linear_model(double b) {
  CostModel model = small_model();
  for (SchemeCoefficients& known : model.profile.schemes) known.a = known.c = 0, known.b = b;
  return model;
}

TEST(Losses, ByHand) {
  const CostModel model = linear_model(1e-3);
  IterationOptions options;
  options.costing.no_communication = true;
  BatchPlan plan;
  // Two devices in two stages: 0.6 s and 0.3 s a stage, a fifth of the first is padding. Two
  // devices in one stage: 0.5 s. Four devices idle.
  plan.pipelines = {pipeline_of(1, 2, {{480}, {300}}), pipeline_of(2, 1, {{500}})};
  plan.pipelines[0].micro_batches[0].padding = 120;
  const auto one = simulate_iteration(plan, model, options);
  const Losses& losses = one.result.losses;
  // Stage 1 computes from 0.2 to 1.1; stage 0 gets the first gradient at 0.8 and computes from then
  // on for 0.4 and 0.2 s.
  EXPECT_NEAR(one.result.time_seconds, 1.4, 1e-12);
  EXPECT_NEAR(losses.work, 2 * (0.48 + 0.3) + 2 * 0.5, 1e-12);
  EXPECT_NEAR(losses.padding, 2 * 0.12, 1e-12);
  EXPECT_NEAR(losses.straggler, 2 * (1.4 - 0.5), 1e-12);
  EXPECT_NEAR(losses.bubble, 2 * (1.4 - 0.9), 1e-12);
  EXPECT_NEAR(losses.unused, 4 * 1.4, 1e-12);
  EXPECT_EQ(losses.exposed, 0);
  EXPECT_EQ(losses.optimizer, 0);
}

TEST(Losses, AddUpToTheWholeUnderEverySchedule) {
  CostModel model = small_model();
  model.model.layers = model.profile.model.layers = 15;
  Random random(5);
  for (int round = 0; round < 10; ++round) {
    BatchPlan plan;
    plan.pipelines = {pipeline_of(1, 4, {}), pipeline_of(2, 1, {})};
    for (PipelinePlan& pipeline : plan.pipelines) {
      const std::uint64_t count = random.below(9);
      for (std::uint64_t j = 0; j < count; ++j) {
        pipeline.micro_batches.push_back(
            {{j}, {static_cast<std::uint32_t>(1 + random.below(900))}, random.below(50)});
      }
    }
    for (const ScheduleChoice& choice : {ScheduleChoice{}, ScheduleChoice{Schedule::interleaved, 3},
                                         ScheduleChoice{Schedule::zero_bubble, 1}}) {
      IterationOptions options;
      options.lowering = choice;
      const auto one = simulate_iteration(plan, model, options);
      const Losses& losses = one.result.losses;
      const double whole = 8 * one.result.time_seconds;
      EXPECT_NEAR(losses.whole(), whole, 1e-9 * whole);
      for (const double part : {losses.work, losses.padding, losses.optimizer, losses.exposed,
                                losses.bubble, losses.straggler, losses.unused}) {
        EXPECT_GE(part, -1e-9 * whole);
      }
      EXPECT_NEAR((losses.bubble + losses.straggler + losses.unused) / whole,
                  one.result.bubble_share, 1e-9);
      EXPECT_NEAR(losses.exposed / 8, one.result.exposed_communication_seconds, 1e-9 * whole);
    }
  }
}

TEST(Losses, OfARunAreTheSumOfItsIterations) {
  const CostModel model = small_model();
  std::vector<BatchPlan> plans(3);
  plans[0].pipelines = {pipeline_of(1, 2, {{100}, {900}})};
  plans[1].pipelines = {pipeline_of(2, 1, {{400}})};
  plans[2].pipelines = {pipeline_of(1, 4, {{100}, {200}, {300}})};
  const RunResult run = simulate(plans, model);
  double whole = 0;
  for (const IterationResult& iteration : run.iterations) whole += 8 * iteration.time_seconds;
  EXPECT_NEAR(run.summary.losses.whole(), whole, 1e-9 * whole);
  std::vector<double> times;
  for (const IterationResult& iteration : run.iterations) times.push_back(iteration.time_seconds);
  std::sort(times.begin(), times.end());
  EXPECT_EQ(run.summary.p50_seconds, times[1]);
  EXPECT_EQ(run.summary.p95_seconds, times[2]);
  EXPECT_EQ(run.summary.p99_seconds, times[2]);
}

TEST(Losses, IterationsOutOfMemoryAreCountedWhereThatIsAskedFor) {
  CostModel model = small_model();
  model.memory = MemoryModel::composed;
  std::vector<BatchPlan> plans(4);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    plans[i].pipelines = {pipeline_of(2, 1, {{i == 2 ? 4000u : 100u}})};
  }
  Scheme scheme;
  scheme.tp = 2;
  const double small = stage_memory(model, scheme, 0, 100, 100).total();
  const double large = stage_memory(model, scheme, 0, 4000, 4000).total();
  ASSERT_LT(small, large);
  // Room for the small ones alone.
  const double reserved = model.cluster.device.memory_bytes - memory_limit_bytes(model);
  model.cluster.device.memory_bytes = (small + large) / 2 + reserved;
  ASSERT_LT(memory_limit_bytes(model), large);
  ASSERT_GT(memory_limit_bytes(model), small);
  IterationOptions options;
  EXPECT_ANY_THROW(simulate(plans, model, options));
  options.count_out_of_memory = true;
  const RunResult run = simulate(plans, model, options);
  EXPECT_DOUBLE_EQ(run.summary.out_of_memory_share, 0.25);
  EXPECT_TRUE(run.iterations[2].out_of_memory);
}

TEST(CriticalPath, AddsUpToTheMakespanAndGainsAreReplays) {
  const CostModel model = small_model();
  BatchPlan plan;
  plan.pipelines = {pipeline_of(1, 4, {{700}, {300}, {900}, {100}}), pipeline_of(2, 1, {{800}})};
  const Program program = lower(plan, model);
  const Durations durations = instruction_durations(program, model);
  const Replay now = replay(program, durations);
  const std::vector<ResourceShare> shares = critical_path(program, durations);
  double path = 0;
  for (const ResourceShare& share : shares) {
    path += share.path_seconds;
    EXPECT_GE(share.gain_twice_as_fast, -1e-12);
    EXPECT_GE(share.gain_if_free, share.gain_twice_as_fast - 1e-12);
    // What is not on the path cannot be worth more than what is.
    EXPECT_LE(share.gain_if_free * now.makespan_seconds, share.path_seconds + 1e-9);
  }
  EXPECT_NEAR(path, now.makespan_seconds, 1e-9 * now.makespan_seconds);
  // Without anything else everything is computing.
  CostingOptions quiet;
  quiet.no_communication = true;
  const auto computing = critical_path(program, instruction_durations(program, model, quiet));
  EXPECT_NEAR(computing[0].gain_twice_as_fast, 0.5, 1e-12);
  EXPECT_NEAR(computing[0].gain_if_free, 1, 1e-12);
  EXPECT_EQ(computing[1].path_seconds, 0);
}

}  // namespace
}  // namespace hydraulis
