#include "sim/communication_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "costmodel/build_cost_model.h"
#include "costmodel/compose.h"
#include "planner/program/lower.h"
#include "tests/costmodel/synthetic_machine.h"
#include "tests/sim/small_model.h"

namespace hydraulis {
namespace {

using testing::pipeline_of;
using testing::small_model;

CostingOptions with(CollectiveAlgorithm algorithm) {
  CostingOptions options;
  options.collectives = algorithm;
  return options;
}

/// Two pipelines of tp 2 and pp 1 on two nodes of two devices; every layer's shard lies on two.
struct TwoReplicas {
  CostModel model = small_model();
  Program program;

  TwoReplicas() {
    model.cluster.devices_per_node = 2;
    model.optimizer = {2, 2, 1};
    BatchPlan plan;
    plan.pipelines = {pipeline_of(2, 1, {{64}}), pipeline_of(2, 1, {{64}})};
    program = lower(plan, model);
  }
  double first(Op op, const CostingOptions& options) const {
    const Stage& stage = program.stages[0];
    const Durations durations = instruction_durations(program, model, options);
    for (std::size_t i = 0; i < stage.instructions.size(); ++i) {
      const Instruction& instruction = stage.instructions[i];
      if (instruction.op == op && instruction.layer_begin != kEmbeddingLayer &&
          instruction.layer_begin != model.model.layers) {
        return durations.seconds[0][i];
      }
    }
    ADD_FAILURE() << "no " << to_string(op);
    return 0;
  }
};

TEST(CommunicationCost, AHomogeneousStrategyGathersAndScattersOverItsReplicas) {
  const TwoReplicas two;
  // Tensor-parallel rank 0 of both: one device in each node, a ring of one step of half the shard.
  const double shard = 2.0 * static_cast<double>(layer_parameters(two.model.model)) / 2;
  const double ring = shard / 2 / 10e6 + 20e-6;
  const CostingOptions options = with(CollectiveAlgorithm::ring);
  EXPECT_NEAR(two.first(Op::gather_parameters, options), ring, 1e-12);
  EXPECT_NEAR(two.first(Op::reduce_gradients, options), ring, 1e-12);
  // The links' own bytes say the same, but for the norms, which every rank holds whole.
  EXPECT_NEAR(two.first(Op::gather_parameters, {}), ring, 0.02 * ring);
  // All-reduce of 8 bytes over 4 devices in 2 nodes: 6 steps, 2 of them between nodes.
  EXPECT_NEAR(two.first(Op::gradient_norm, options), 4 * 10e-6 + 2 * 20e-6 + 1.5 * 8 / 20e6, 1e-12);
}

TEST(CommunicationCost, HalfTheBandwidthDoublesTheBytesPartAndTwiceTheLatencyTheRest) {
  const TwoReplicas two;
  for (const auto algorithm : {CollectiveAlgorithm::automatic, CollectiveAlgorithm::ring,
                               CollectiveAlgorithm::tree, CollectiveAlgorithm::hierarchical}) {
    CostingOptions slow = with(algorithm);
    slow.bandwidth_scale = 0.5;
    CostingOptions late = with(algorithm);
    late.latency_scale = 2;
    for (const Op op : {Op::gather_parameters, Op::reduce_gradients}) {
      const double base = two.first(op, with(algorithm));
      EXPECT_NEAR(two.first(op, slow) + two.first(op, late), 3 * base, 1e-9 * base);
    }
  }
}

TEST(CommunicationCost, UnlikePipelinesMoveMessages) {
  CostModel model = small_model();
  BatchPlan plan;
  plan.pipelines = {pipeline_of(1, 2, {{64}}), pipeline_of(2, 1, {{64}})};
  const Program program = lower(plan, model);
  const Durations links = instruction_durations(program, model, {});
  const CostingOptions options = with(CollectiveAlgorithm::automatic);
  const Durations messages = instruction_durations(program, model, options);
  const detail::CommunicationCost cost(program, model, options);
  int moved = 0;
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    for (std::size_t i = 0; i < stage.instructions.size(); ++i) {
      const Instruction& instruction = stage.instructions[i];
      EXPECT_FALSE(cost.is_uniform(stage, instruction));
      if (instruction.op != Op::gather_parameters && instruction.op != Op::reduce_gradients) {
        continue;
      }
      // The same bytes over the same plain links; messages inside a node have its own latency.
      EXPECT_LE(messages.seconds[s][i], links.seconds[s][i] + 1e-15);
      EXPECT_NEAR(messages.seconds[s][i], links.seconds[s][i], 10e-6 * instruction.transfers);
      ++moved;
    }
  }
  EXPECT_GT(moved, 4);
}

TEST(CommunicationCost, ShardedParametersAreGatheredOverEveryDevice) {
  CostModel model = small_model();
  model.sharding = ParameterSharding::sharded;
  SchemeCoefficients one;
  one.b = 1e-6;
  model.profile.schemes.push_back(one);
  BatchPlan plan;
  for (int i = 0; i < 8; ++i) plan.pipelines.push_back(pipeline_of(1, 1, {{64}}));
  const Program program = lower(plan, model);
  const Durations ring = instruction_durations(program, model, with(CollectiveAlgorithm::ring));
  const auto& instructions = program.stages[0].instructions;
  const CollectiveNetwork network = collective_network(model.cluster);
  int checked = 0;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& instruction = instructions[i];
    if (instruction.op != Op::gather_parameters) continue;
    double expected = 0;
    for (int layer = instruction.layer_begin; layer < instruction.layer_end; ++layer) {
      // A ring of 8 through 2 nodes: the 4 cards of a node carry 40 MB/s.
      expected +=
          7.0 / 8 * 2 * detail::parameters_of(model.model, layer) / 40e6 + 6 * 10e-6 + 20e-6;
    }
    EXPECT_NEAR(ring.seconds[0][i], expected, 1e-9);
    ++checked;
  }
  EXPECT_GT(checked, 2);
  EXPECT_EQ(network.generation, NcclGeneration::none);
}

TEST(CommunicationCost, AutoIsNeverSlowerAndAnUnusedNodeChangesNothing) {
  const TwoReplicas two;
  const auto total = [&](const Program& program, const CostModel& model,
                         CollectiveAlgorithm algorithm) {
    double sum = 0;
    for (const auto& stage : instruction_durations(program, model, with(algorithm)).seconds) {
      sum = std::accumulate(stage.begin(), stage.end(), sum);
    }
    return sum;
  };
  const double least = total(two.program, two.model, CollectiveAlgorithm::automatic);
  for (const auto algorithm :
       {CollectiveAlgorithm::ring, CollectiveAlgorithm::tree, CollectiveAlgorithm::hierarchical}) {
    EXPECT_LE(least, total(two.program, two.model, algorithm));
  }
  // Groups of replicas do not grow with the cluster; barriers are of every device.
  CostModel larger = two.model;
  larger.cluster.nodes = 4;
  const Program same = two.program;
  EXPECT_EQ(total(same, larger, CollectiveAlgorithm::ring),
            total(same, two.model, CollectiveAlgorithm::ring));
}

TEST(CommunicationCost, MeasuredCurvesGoFirst) {
  using testing::SyntheticMachine;
  const CostModel model =
      make_cost_model(testing::tiny_model(), testing::tiny_cluster(1, 4),
                      operator_profile(measured_operators(
                          testing::measure(SyntheticMachine(), testing::tiny_model()), "test")),
                      MemoryModel::composed, {4, 1, 1});
  BatchPlan plan;
  for (int i = 0; i < 4; ++i) plan.pipelines.push_back(pipeline_of(1, 1, {{512}}));
  const Program program = lower(plan, model);
  const auto& operators = *model.profile.operators;
  const Durations durations =
      instruction_durations(program, model, with(CollectiveAlgorithm::tree));
  const auto& instructions = program.stages[0].instructions;
  int checked = 0;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    if (instructions[i].op != Op::gather_parameters) continue;
    double expected = 0;
    for (int layer = instructions[i].layer_begin; layer < instructions[i].layer_end; ++layer) {
      FitUse use;
      expected += collective_seconds(
                      operators.fits, Collective::all_gather, 4, 1,
                      operators.element_bytes * detail::parameters_of(model.model, layer), use)
                      .value();
    }
    EXPECT_NEAR(durations.seconds[0][i], expected, 1e-12);
    ++checked;
  }
  EXPECT_GT(checked, 2);
}

TEST(CommunicationCost, ResultsSayWhichCollectivesAndWhoseTable) {
  CostModel model = small_model();
  CostingOptions options = with(CollectiveAlgorithm::ring);
  EXPECT_THAT(costing_assumptions(model, options),
              ::testing::Contains(::testing::HasSubstr("collectives: ring, by the links alone")));
  model.cluster.device.name = "h100";
  model.cluster.intra_node.bandwidth_bytes_per_second = 450e9;
  options.bandwidth_scale = 0.5;
  EXPECT_THAT(costing_assumptions(model, options),
              ::testing::Contains(::testing::HasSubstr("NCCL's public cost table for Hopper")));
  EXPECT_THAT(costing_assumptions(model, options),
              ::testing::Contains(::testing::HasSubstr("185.4 and")));
}

TEST(CommunicationCost, NamesOfStudies) {
  EXPECT_FALSE(parse_collectives("links", "f"));
  for (const char* name : {"links", "auto", "ring", "tree", "hierarchical"}) {
    EXPECT_STREQ(collectives_name(parse_collectives(name, "f")), name);
  }
  EXPECT_THROW(parse_collectives("pairwise", "f"), InputError);
}

}  // namespace
}  // namespace hydraulis
