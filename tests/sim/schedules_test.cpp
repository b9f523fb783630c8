// Every schedule as a program: verified, written and read, replayed, equal to its own recurrence.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "planner/program/expand.h"
#include "planner/program/program_json.h"
#include "planner/program/verify.h"
#include "planner/schedule_plan.h"
#include "sim/iterations.h"
#include "tests/sim/small_model.h"

namespace hydraulis {
namespace {

using testing::small_model;

constexpr ScheduleChoice kChoices[] = {{Schedule::one_f_one_b, 1},    {Schedule::gpipe, 1},
                                       {Schedule::interleaved, 2},    {Schedule::interleaved, 3},
                                       {Schedule::zero_bubble_h1, 1}, {Schedule::zero_bubble, 1},
                                       {Schedule::unequal, 1}};

CostModel deep_model() {
  CostModel model = small_model();
  model.model.layers = 15;  // not a multiple of the stages
  model.profile.model.layers = 15;
  model.memory = MemoryModel::composed;
  return model;
}

/// Pipelines of four stages, two stages and one, with micro-batches of unequal lengths.
BatchPlan random_plan(std::uint64_t seed) {
  Random random(seed);
  BatchPlan plan;
  std::uint64_t id = 0;
  for (const auto& [tp, pp] : {std::pair{1, 4}, {1, 2}, {2, 1}}) {
    PipelinePlan pipeline;
    pipeline.scheme.tp = tp;
    pipeline.scheme.pp = pp;
    const std::uint64_t count = random.below(12);
    for (std::uint64_t j = 0; j < count; ++j) {
      MicroBatch batch;
      batch.sequence_ids = {id++};
      batch.lengths = {static_cast<std::uint32_t>(16 + random.below(1000))};
      batch.padding = random.below(64);
      pipeline.micro_batches.push_back(batch);
    }
    plan.pipelines.push_back(pipeline);
  }
  return plan;
}

IterationOptions quiet(const ScheduleChoice& choice) {
  IterationOptions options;
  options.costing.no_communication = true;
  options.lowering = choice;
  return options;
}

TEST(Schedules, AreSoundProgramsAndTakeWhatTheirRecurrenceSays) {
  const CostModel model = deep_model();
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    for (const ScheduleChoice& choice : kChoices) {
      SCOPED_TRACE(to_string(choice) + " seed " + std::to_string(seed));
      BatchPlan plan = random_plan(seed);
      put_under_schedule(plan, model, choice, 2000);
      const Program program = lower(plan, model, choice);
      EXPECT_EQ(verify(program, model), std::vector<std::string>{});
      const Program read = program_from_json(program_to_json(program), "program");
      EXPECT_EQ(program_to_json(read), program_to_json(program));
      EXPECT_EQ(verify(read), std::vector<std::string>{});

      const auto run = simulate_iteration(plan, model, quiet(choice));
      double expected = 0;
      for (const PipelinePlan& pipeline : plan.pipelines) {
        const ScheduleChoice own = on_scheme(choice, pipeline.scheme);
        const ScheduleWork work =
            schedule_work(model, pipeline.scheme, pipeline.micro_batches, own);
        const double seconds = steps_makespan(work, schedule_steps(own, work));
        if (choice.schedule != Schedule::one_f_one_b) {
          EXPECT_NEAR(pipeline.time_seconds, seconds, 1e-9 * seconds);
        }
        EXPECT_GE(seconds, schedule_lower_bound(work, splits_backward(own.schedule)) * (1 - 1e-12));
        expected = std::max(expected, seconds);
      }
      EXPECT_NEAR(run.result.time_seconds, expected, 1e-9 * expected);
      // Transfers only add.
      IterationOptions options = quiet(choice);
      options.costing.no_communication = false;
      EXPECT_GE(simulate_iteration(plan, model, options).result.time_seconds,
                expected * (1 - 1e-12));
    }
  }
}

TEST(Schedules, OneThatIsPutOnByTheSimulatorIsTheOnePutOnBefore) {
  const CostModel model = deep_model();
  const ScheduleChoice choice{Schedule::zero_bubble, 1};
  BatchPlan plan = random_plan(3);
  IterationOptions options = quiet(choice);
  options.order_for_schedule = true;
  const double by_simulator = simulate_iteration(plan, model, options).result.time_seconds;
  put_under_schedule(plan, model, choice);
  EXPECT_NEAR(by_simulator, plan.makespan_seconds, 1e-9 * by_simulator);
}

TEST(Schedules, InterleavingKeepsMemoryAndWorkOfAStageTogether) {
  const CostModel model = deep_model();
  BatchPlan plan;
  PipelinePlan pipeline;
  pipeline.scheme.pp = 4;
  for (std::uint64_t j = 0; j < 8; ++j) pipeline.micro_batches.push_back({{j}, {100}, 0});
  plan.pipelines = {pipeline};
  const auto whole = simulate_iteration(plan, model, quiet({}));
  const auto inter = simulate_iteration(plan, model, quiet({Schedule::interleaved, 2}));
  EXPECT_LT(inter.result.time_seconds, whole.result.time_seconds);
  const Stage& first = inter.program.stages[0];
  ASSERT_EQ(chunks_of(first), 2);
  EXPECT_EQ(layer_count(first), layer_count(whole.program.stages[0]));
  for (std::size_t s = 0; s < 4; ++s) {
    EXPECT_NEAR(inter.replay.stages[s].compute_seconds, whole.replay.stages[s].compute_seconds,
                1e-9);
    // The expansion runs every layer of the stage once in each pass.
    std::vector<int> layers;
    for (std::size_t i = 0; i < inter.program.stages[s].instructions.size(); ++i) {
      const Instruction& what = inter.program.stages[s].instructions[i];
      if (what.op != Op::forward || what.micro_batch != 0) continue;
      for (const Operation& operation :
           expand(inter.program, model.model, static_cast<int>(s), static_cast<int>(i))) {
        if (operation.part == OperationPart::query_key_value) layers.push_back(operation.layer);
      }
    }
    EXPECT_EQ(static_cast<int>(layers.size()), layer_count(inter.program.stages[s]));
    for (const int layer : layers) EXPECT_TRUE(holds_layer(inter.program.stages[s], layer));
  }
  // 2·3 + 4 + 1 runs of layers, of which stage 0 has two and two, are alive on the first stage.
  EXPECT_EQ(inter.replay.stages[0].peak_live_micro_batches, 11);
  EXPECT_EQ(inter.replay.stages[0].peak_live_tokens, 550u);
}

TEST(Schedules, AProgramWhoseRunsOfLayersAreMixedUpIsRefused) {
  const CostModel model = deep_model();
  BatchPlan plan = random_plan(1);
  plan.pipelines.resize(1);
  plan.pipelines[0].micro_batches.resize(6, {{90}, {50}, 0});
  const Program good = lower(plan, model, {Schedule::interleaved, 2});
  const auto broken = [&](auto change) {
    Program program = good;
    change(program);
    return !verify(program).empty();
  };
  EXPECT_FALSE(broken([](Program&) {}));
  EXPECT_TRUE(broken([](Program& p) { p.stages[1].instructions.back().chunk = 2; }));
  EXPECT_TRUE(broken([](Program& p) { ++p.stages[2].more_layers[0].begin; }));
  EXPECT_TRUE(broken([](Program& p) { p.stages[2].more_layers.clear(); }));
  EXPECT_TRUE(broken([](Program& p) {
    for (Instruction& i : p.stages[0].instructions) {
      if (i.op == Op::receive_activation) {
        i.chunk = 0;
        return;
      }
    }
  }));
  EXPECT_TRUE(broken([](Program& p) {
    for (Instruction& i : p.stages[3].instructions) {
      if (i.op == Op::forward) {
        i.chunk = 1;
        return;
      }
    }
  }));
}

TEST(Schedules, TheSameOnAnyNumberOfThreads) {
  const CostModel model = deep_model();
  std::vector<BatchPlan> plans;
  for (std::uint64_t seed = 0; seed < 8; ++seed) plans.push_back(random_plan(seed));
  for (const ScheduleChoice& choice : kChoices) {
    IterationOptions options;
    options.lowering = choice;
    options.order_for_schedule = true;
    const RunResult one = simulate(plans, model, options);
    options.threads = 2;
    const RunResult two = simulate(plans, model, options);
    for (std::size_t i = 0; i < plans.size(); ++i) {
      EXPECT_EQ(one.iterations[i].time_seconds, two.iterations[i].time_seconds);
      EXPECT_EQ(one.iterations[i].bubble_share, two.iterations[i].bubble_share);
    }
  }
}

}  // namespace
}  // namespace hydraulis
