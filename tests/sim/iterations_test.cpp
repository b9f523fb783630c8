#include "sim/iterations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "planner/pipeline_cost.h"
#include "planner/schedule.h"
#include "tests/sim/hand_programs.h"
#include "tests/sim/small_model.h"

namespace hydraulis {
namespace {

using testing::pipeline_of;
using testing::small_model;

IterationOptions quiet() {
  IterationOptions options;
  options.costing.no_communication = true;
  return options;
}

std::vector<BatchPlan> drawn_plans(int count) {
  Random random(7);
  std::vector<BatchPlan> plans;
  for (int i = 0; i < count; ++i) {
    BatchPlan plan;
    plan.strategy = i % 3;
    for (const auto& [tp, pp] : {std::pair{1, 4}, {1, 2}, {2, 1}}) {
      PipelinePlan pipeline = pipeline_of(tp, pp, {});
      for (std::uint64_t m = random.below(9); m > 0; --m) {
        pipeline.micro_batches.push_back(
            {{m}, {static_cast<std::uint32_t>(1 + random.below(2000))}, random.below(64)});
      }
      plan.pipelines.push_back(pipeline);
    }
    plans.push_back(plan);
  }
  return plans;
}

TEST(Iterations, WithoutCommunicationTheMakespanIsThePlannersRecurrence) {
  const CostModel model = small_model();
  for (const BatchPlan& plan : drawn_plans(30)) {
    double expected = 0;
    for (const PipelinePlan& pipeline : plan.pipelines) {
      const auto& scheme = pipeline.scheme;
      std::vector<double> seconds;
      for (const MicroBatch& batch : pipeline.micro_batches) {
        seconds.push_back(
            stage_cost(model, scheme, 0)
                ->of(batch.sum_squares(), static_cast<double>(batch.tokens() + batch.padding)));
      }
      if (seconds.empty()) continue;
      expected = std::max(expected, OneForwardOneBackward(scheme.pp).makespan(seconds));
    }
    const auto iteration = simulate_iteration(plan, model, quiet());
    EXPECT_NEAR(iteration.result.time_seconds, expected, 1e-9 * expected);
  }
}

TEST(Iterations, LoweredProgramsGiveTheHandSolvedMakespans) {
  CostModel model = small_model();
  // Every micro-batch takes 1 s forward and 2 s backward on each stage.
  for (SchemeCoefficients& known : model.profile.schemes) known.a = known.b = 0, known.c = 3;
  for (const int micro_batches : {1, 2, 3, 4, 16}) {
    for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::gpipe}) {
      BatchPlan plan;
      plan.pipelines.push_back(pipeline_of(1, 4, {}));
      for (int m = 0; m < micro_batches; ++m) {
        plan.pipelines[0].micro_batches.push_back({{static_cast<std::uint64_t>(m)}, {1}, 0});
      }
      IterationOptions options = quiet();
      options.lowering.schedule = schedule;
      const auto iteration = simulate_iteration(plan, model, options);
      EXPECT_NEAR(iteration.result.time_seconds, 3.0 * (micro_batches + 3), 1e-9);
      EXPECT_EQ(iteration.replay.stages[0].peak_live_micro_batches,
                schedule == Schedule::gpipe ? micro_batches : std::min(4, micro_batches));
      const testing::HandPipeline hand(4, micro_batches, schedule == Schedule::gpipe);
      const Replay by_hand =
          replay(hand.program, hand.durations(std::vector<double>(micro_batches, 1.0), 2));
      EXPECT_NEAR(iteration.replay.makespan_seconds, by_hand.makespan_seconds, 1e-9);
    }
  }
}

TEST(Iterations, IdleShareCountsWaitingForOtherPipelinesAndUnusedDevices) {
  CostModel model = small_model();
  for (SchemeCoefficients& known : model.profile.schemes) known.a = known.c = 0, known.b = 1e-3;
  BatchPlan plan;
  plan.pipelines = {pipeline_of(2, 1, {{1000}}), pipeline_of(2, 1, {{500}})};
  const auto iteration = simulate_iteration(plan, model, quiet());
  EXPECT_NEAR(iteration.result.time_seconds, 1.0, 1e-12);
  // 8 devices: 2 busy for 1 s, 2 for 0.5 s, 4 never.
  EXPECT_NEAR(iteration.result.bubble_share, (2 * 0.5 + 4) / 8, 1e-12);
  EXPECT_EQ(iteration.result.tokens, 1500U);
  const double flops = training_flops(model.model, 1500, 1000.0 * 1000 + 500.0 * 500);
  EXPECT_DOUBLE_EQ(iteration.result.flops, flops);
  EXPECT_DOUBLE_EQ(iteration.result.mfu, flops / (1.0 * 8 * 1e9));
}

TEST(Iterations, PaddingTakesTimeButIsNotCountedAsWork) {
  const CostModel model = small_model();
  BatchPlan plan;
  plan.pipelines = {pipeline_of(2, 1, {{1000}})};
  const auto without = simulate_iteration(plan, model, quiet());
  plan.pipelines[0].micro_batches[0].padding = 500;
  const auto with = simulate_iteration(plan, model, quiet());
  EXPECT_NEAR(with.result.time_seconds - without.result.time_seconds, 0.5, 1e-12);
  EXPECT_EQ(with.result.tokens, without.result.tokens);
  EXPECT_EQ(with.result.flops, without.result.flops);
}

TEST(Iterations, ThreadsDoNotChangeResults) {
  const CostModel model = small_model();
  const auto plans = drawn_plans(40);
  IterationOptions options;
  const RunResult one = simulate(plans, model, options);
  options.threads = 4;
  std::size_t last = 0;
  options.on_progress = [&](std::size_t done) { EXPECT_EQ(done, ++last); };
  const RunResult four = simulate(plans, model, options);
  EXPECT_EQ(last, plans.size());
  ASSERT_EQ(one.iterations.size(), four.iterations.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    EXPECT_EQ(one.iterations[i].time_seconds, four.iterations[i].time_seconds);
    EXPECT_EQ(one.iterations[i].bubble_share, four.iterations[i].bubble_share);
    EXPECT_EQ(one.iterations[i].events, four.iterations[i].events);
    EXPECT_EQ(one.iterations[i].strategy, static_cast<int>(i) % 3);
  }
  EXPECT_EQ(one.summary.mean_seconds, four.summary.mean_seconds);
  EXPECT_EQ(one.summary.p95_seconds, four.summary.p95_seconds);
  EXPECT_EQ(one.summary.bubble_share, four.summary.bubble_share);
  EXPECT_EQ(one.summary.events, four.summary.events);
}

TEST(Iterations, TheEarliestErrorIsReportedWithItsIteration) {
  const CostModel model = small_model();
  auto plans = drawn_plans(40);
  for (const int broken : {11, 12, 30}) {
    // As many devices, but a scheme that the profile does not know.
    plans[broken].pipelines[2].scheme.tp = 1;
    plans[broken].pipelines[2].scheme.cp = 2;
  }
  for (const int threads : {1, 4}) {
    IterationOptions options;
    options.threads = threads;
    try {
      simulate(plans, model, options);
      FAIL();
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()).rfind("iteration 11: ", 0), 0U) << error.what();
    }
  }
  IterationOptions none;
  none.threads = 0;
  EXPECT_THROW(simulate(plans, model, none), InputError);
}

TEST(Iterations, CommunicationOnlyAddsTimeAndShrinksWithBandwidth) {
  const CostModel model = small_model();
  for (const BatchPlan& plan : drawn_plans(10)) {
    IterationOptions options;
    const double base = simulate_iteration(plan, model, options).result.time_seconds;
    EXPECT_GT(base, simulate_iteration(plan, model, quiet()).result.time_seconds);
    options.costing.bandwidth_scale = 4;
    EXPECT_LT(simulate_iteration(plan, model, options).result.time_seconds, base);
  }
}

TEST(Iterations, MemoryHighWaterFollowsTheTokensAlive) {
  CostModel model = small_model();
  model.memory = MemoryModel::composed;
  model.cluster.device.memory_bytes = 80e9;
  BatchPlan plan;
  plan.pipelines = {pipeline_of(1, 4, {{500}, {400, 200}, {300}, {100}, {700}})};
  const auto iteration = simulate_iteration(plan, model, quiet());
  // 1F1B holds 4, 3, 2, 1 consecutive micro-batches: the most tokens alive at once.
  const std::vector<std::uint64_t> tokens = {500 + 600 + 300 + 100, 500 + 600 + 300, 500 + 600,
                                             700};
  // Stage 0 later holds 600+300+100+700, which is more.
  EXPECT_EQ(iteration.replay.stages[0].peak_live_tokens, 600U + 300 + 100 + 700);
  for (int s = 1; s < 4; ++s) {
    EXPECT_EQ(iteration.replay.stages[s].peak_live_tokens, tokens[s]) << s;
  }
  for (int s = 0; s < 4; ++s) {
    EXPECT_DOUBLE_EQ(
        iteration.replay.stages[s].memory_bytes,
        stage_memory(model, plan.pipelines[0].scheme, s,
                     static_cast<double>(iteration.replay.stages[s].peak_live_tokens), 700)
            .total());
  }
}

TEST(Iterations, RunningOutOfMemorySaysByHowMuch) {
  CostModel model = small_model();
  model.memory = MemoryModel::composed;
  model.cluster.device.memory_bytes = 1e6;
  BatchPlan plan;
  plan.pipelines = {pipeline_of(1, 2, {{5000}, {5000}})};
  try {
    simulate({plan}, model, quiet());
    FAIL();
  } catch (const InfeasibleError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("iteration 0: out of memory: pipeline 0 (1,1,2) stage 0"),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("GB over the limit"), std::string::npos) << message;
  }
}

RunSummary summarise(const std::vector<IterationResult>& iterations, int devices,
                     double peak_flops) {
  RunTotals totals;
  for (const IterationResult& iteration : iterations) totals.add(iteration);
  return totals.summary(devices, peak_flops);
}

TEST(RunTotals, WeighByTimeAndTakeTheNearestRank) {
  std::vector<IterationResult> iterations(20);
  for (int i = 0; i < 20; ++i) {
    iterations[i].time_seconds = 20 - i;
    iterations[i].tokens = 100;
    iterations[i].flops = 1e3;
    iterations[i].bubble_share = i == 0 ? 0.5 : 0;
    iterations[i].events = 10;
  }
  const RunSummary summary = summarise(iterations, 4, 5);
  EXPECT_DOUBLE_EQ(summary.mean_seconds, 10.5);
  EXPECT_DOUBLE_EQ(summary.p95_seconds, 19);
  EXPECT_DOUBLE_EQ(summary.tokens_per_second, 2000.0 / 210);
  EXPECT_DOUBLE_EQ(summary.mfu, 20e3 / (210 * 4 * 5.0));
  EXPECT_DOUBLE_EQ(summary.bubble_share, 0.5 * 20 / 210);
  EXPECT_EQ(summary.events, 200U);
  EXPECT_DOUBLE_EQ(summarise({iterations[4]}, 4, 5).p95_seconds, 16);
  EXPECT_EQ(summarise({}, 4, 5).mean_seconds, 0);
}

}  // namespace
}  // namespace hydraulis
