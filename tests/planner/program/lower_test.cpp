#include "planner/program/lower.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "planner/program/reshard.h"
#include "tests/planner/program/program_fixture.h"
#include "tests/planner/program/replay.h"

namespace hydraulis {
namespace {

using testing::cost_model;
using testing::makespan;
using testing::pipeline_plan;
using testing::scheme;
using testing::tiny_model;

Program one_pipeline(int stages, int micro_batches, Schedule schedule) {
  ModelSpec model = tiny_model();
  model.layers = 16;
  const CostModel cost = cost_model(model, 2, 8, {16, 1, 1});
  BatchPlan plan;
  plan.pipelines = {
      pipeline_plan(scheme(1, 1, stages), std::vector<std::uint32_t>(micro_batches, 16))};
  return lower(plan, cost, {schedule});
}

int most_alive(const Stage& stage) {
  int alive = 0, most = 0;
  for (const Instruction& instruction : stage.instructions) {
    if (instruction.op == Op::forward) most = std::max(most, ++alive);
    if (instruction.op == Op::backward) --alive;
  }
  return most;
}

TEST(Lower, UnitCostMakespansAndActivationsOfBothSchedules) {
  const std::vector<std::array<int, 3>> cases{{8, 32, 78}, {8, 1, 16}, {4, 1, 8}, {4, 2, 10},
                                              {4, 3, 12},  {4, 4, 14}, {1, 5, 10}};
  for (const auto& [stages, micro_batches, expected] : cases) {
    for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::gpipe}) {
      const Program program = one_pipeline(stages, micro_batches, schedule);
      EXPECT_EQ(makespan(program, [](int, const Instruction&) { return 1.0; }), expected)
          << stages << " x " << micro_batches;
      EXPECT_EQ(most_alive(program.stages[0]),
                schedule == Schedule::gpipe ? micro_batches : std::min(stages, micro_batches));
    }
  }
}

TEST(Lower, BackwardTwiceTheForward) {
  const auto seconds = [](int, const Instruction& i) { return i.op == Op::forward ? 1.0 : 2.0; };
  EXPECT_EQ(makespan(one_pipeline(4, 16, Schedule::one_f_one_b), seconds), 57);
  EXPECT_EQ(makespan(one_pipeline(8, 64, Schedule::one_f_one_b), seconds), 213);
}

TEST(Lower, UnequalMicroBatchesMatchIndependentSimulators) {
  const auto run = [](int stages, int micro_batches) {
    std::vector<double> weights;
    std::uint32_t x = 12345;
    for (int i = 0; i < micro_batches; ++i) {
      x = 1664525u * x + 1013904223u;
      weights.push_back(0.25 + 1.5 * (x >> 8) / 16777216.0);
    }
    return makespan(one_pipeline(stages, micro_batches, Schedule::one_f_one_b),
                    [&](int, const Instruction& i) {
                      return weights[i.micro_batch] * (i.op == Op::forward ? 1 : 2);
                    });
  };
  EXPECT_NEAR(run(8, 64), 322.156896, 1e-6);
  EXPECT_NEAR(run(16, 128), 691.617401, 1e-6);
}

TEST(Lower, EachLayerOnceWhateverTheStages) {
  for (const auto& [layers, stages] : {std::pair{30, 4}, {10, 3}, {7, 2}, {62, 4}}) {
    ModelSpec model = tiny_model();
    model.layers = layers;
    BatchPlan plan;
    plan.pipelines = {pipeline_plan(scheme(1, 1, stages), {16, 16})};
    const Program program = lower(plan, cost_model(model, 1, 8, {8, 1, 1}));
    std::multiset<int> held, gathered, reduced;
    for (const Stage& stage : program.stages) {
      for (int layer = stage.layer_begin; layer < stage.layer_end; ++layer) held.insert(layer);
      for (const Instruction& i : stage.instructions) {
        if (i.op == Op::gather_parameters) gathered.insert(i.layer_begin);
        if (i.op == Op::reduce_gradients) reduced.insert(i.layer_begin);
      }
    }
    std::multiset<int> expected;
    for (int layer = 0; layer < layers; ++layer) expected.insert(layer);
    EXPECT_EQ(held, expected);
    expected.insert({kEmbeddingLayer, layers});
    EXPECT_EQ(gathered, expected);
    EXPECT_EQ(reduced, expected);
  }
}

TEST(Lower, IdlePipelineStillGathersReducesAndSteps) {
  BatchPlan plan;
  plan.pipelines = {pipeline_plan(scheme(1, 2, 1), {16}), pipeline_plan(scheme(1, 2, 2), {})};
  const Program program = lower(plan, cost_model(tiny_model(), 1, 8, {4, 2, 1}));
  for (const Stage& stage : program.stages) {
    std::map<Op, int> counts;
    for (const Instruction& i : stage.instructions) ++counts[i.op];
    EXPECT_EQ(counts[Op::forward], stage.pipeline == 0 ? 1 : 0);
    EXPECT_EQ(counts[Op::gather_parameters],
              stage.layer_end - stage.layer_begin + stage.has_embedding + stage.has_head);
    EXPECT_EQ(counts[Op::reduce_gradients], counts[Op::gather_parameters]);
    EXPECT_EQ(counts[Op::gradient_norm], 1);
    EXPECT_EQ(counts[Op::optimizer_step], 1);
  }
}

TEST(Lower, SendsCountTokensPaddingAndShards) {
  BatchPlan plan;
  plan.pipelines = {pipeline_plan(scheme(2, 2, 2), {30})};
  plan.pipelines[0].micro_batches[0].padding = 11;  // 41 tokens over 4 devices: 11 on the fullest
  const CostModel one_node = cost_model(tiny_model(), 1, 8, {8, 1, 1});
  const CostModel two_nodes = cost_model(tiny_model(), 2, 4, {8, 1, 1});
  int sends = 0;
  for (const CostModel* cost : {&one_node, &two_nodes}) {
    const Program program = lower(plan, *cost);
    for (const Stage& stage : program.stages) {
      for (const Instruction& i : stage.instructions) {
        if (i.peer < 0) continue;
        ++sends;
        const bool near = cost == &one_node;
        EXPECT_EQ(i.intra_node_bytes, near ? 11 * 8 * 2 : 0);
        EXPECT_EQ(i.inter_node_bytes, near ? 0 : 11 * 8 * 2);
        EXPECT_EQ(i.transfers, 1);
      }
    }
  }
  EXPECT_EQ(sends, 8);
}

TEST(Lower, ReshardBytesAreThoseOfTheTransferList) {
  ModelSpec model = tiny_model();
  model.kv_heads = 2;
  BatchPlan plan;
  plan.pipelines = {pipeline_plan(scheme(1, 4, 1), {16, 8}), pipeline_plan(scheme(2, 2, 2), {16}),
                    pipeline_plan(scheme(1, 1, 4), {8})};
  const CostModel cost = cost_model(model, 4, 4, {4, 2, 2});
  const Program program = lower(plan, cost);
  int checked = 0;
  for (const Stage& stage : program.stages) {
    for (const Instruction& i : stage.instructions) {
      if (i.op != Op::gather_parameters && i.op != Op::reduce_gradients) continue;
      const std::vector<Transfer> transfers = plan_transfers(
          optimizer_layout(model, cost.optimizer, i.layer_begin),
          stage_layout(model, stage, program.pipelines[stage.pipeline].scheme.tp, i.layer_begin),
          program.devices_per_node, kParameterBytes);
      std::tuple<std::int64_t, std::int64_t, int> busiest;
      for (const int device : stage.devices) {
        std::int64_t near = 0, far = 0;
        std::set<int> senders;
        for (const Transfer& t : transfers) {
          if (t.destination != device || t.source == device) continue;
          (t.source / 4 == device / 4 ? near : far) += (t.end - t.begin) * kParameterBytes;
          senders.insert(t.source);
        }
        busiest = std::max(busiest, std::tuple(far, near, static_cast<int>(senders.size())));
      }
      EXPECT_EQ(std::tuple(i.inter_node_bytes, i.intra_node_bytes, i.transfers), busiest);
      ++checked;
    }
  }
  EXPECT_EQ(checked, 3 * 2 * (4 + 2));
}

TEST(Lower, RefusesWhatCannotBe) {
  BatchPlan plan;
  EXPECT_THROW(lower(plan, cost_model(tiny_model(), 1, 8, {8, 1, 1})), InputError);
  plan.pipelines = {pipeline_plan(scheme(1, 1, 1), {16})};
  EXPECT_THROW(lower(plan, cost_model(tiny_model(), 1, 8, {16, 1, 1})), InfeasibleError);
  EXPECT_THROW(lower(plan, cost_model(tiny_model(), 1, 8, {0, 1, 1})), InputError);
  plan.pipelines = {pipeline_plan(scheme(1, 1, 5), {16})};  // four layers
  EXPECT_THROW(lower(plan, cost_model(tiny_model(), 1, 8, {8, 1, 1})), InputError);
}

}  // namespace
}  // namespace hydraulis
