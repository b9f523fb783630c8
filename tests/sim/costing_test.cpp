#include "sim/costing.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "planner/program/lower.h"
#include "tests/sim/small_model.h"

namespace hydraulis {
namespace {

using testing::pipeline_of;
using testing::small_model;

Instruction make(Op op, StreamKind stream, int micro_batch = -1) {
  Instruction instruction;
  instruction.op = op;
  instruction.stream = stream;
  instruction.micro_batch = micro_batch;
  return instruction;
}

/// One stage (of two) with the given instructions and one micro-batch of 300 and 100 tokens and 50
/// of padding.
Program program_of(std::vector<Instruction> instructions) {
  Program program;
  program.devices = 8;
  program.devices_per_node = 4;
  PipelineProgram pipeline;
  pipeline.scheme.pp = 2;
  pipeline.micro_batches.push_back({{0, 1}, {300, 100}, 50});
  program.pipelines.push_back(pipeline);
  program.stages.resize(2);
  program.stages[1].index = 1;
  program.stages[0].instructions = std::move(instructions);
  return program;
}

double cost_of(const Instruction& instruction, const CostModel& model,
               const CostingOptions& options = {}) {
  return instruction_durations(program_of({instruction}), model, options).seconds[0][0];
}

// 1e-6·(300² + 100²) + 1e-3·(400 + 50) + 0.1
constexpr double kWhole = 0.1 + 0.45 + 0.1;

TEST(Costing, AThirdOfTheStageTimeIsForward) {
  const CostModel model = small_model();
  EXPECT_NEAR(cost_of(make(Op::forward, StreamKind::compute, 0), model), kWhole / 3, 1e-12);
  EXPECT_NEAR(cost_of(make(Op::recompute, StreamKind::compute, 0), model), kWhole / 3, 1e-12);
  EXPECT_NEAR(cost_of(make(Op::backward, StreamKind::compute, 0), model), kWhole * 2 / 3, 1e-12);
  // Attention has no weights: its gradients are all in the first part.
  constexpr double kLinear = 0.45 + 0.1;
  EXPECT_NEAR(cost_of(make(Op::backward_input, StreamKind::compute, 0), model),
              kWhole * 2 / 3 - kLinear / 3, 1e-12);
  EXPECT_NEAR(cost_of(make(Op::backward_weight, StreamKind::compute, 0), model), kLinear / 3,
              1e-12);
}

TEST(Costing, TransfersAreLatencyPlusBytesOverBandwidth) {
  CostModel model = small_model();
  Instruction send = make(Op::send_activation, StreamKind::activation_send, 0);
  send.peer = 1;
  send.transfers = 1;
  send.intra_node_bytes = 1'000'000;
  EXPECT_NEAR(cost_of(send, model), 10e-6 + 0.01, 1e-12);
  send.intra_node_bytes = 0;
  send.inter_node_bytes = 1'000'000;
  EXPECT_NEAR(cost_of(send, model), 20e-6 + 0.1, 1e-12);
  Instruction gather = make(Op::gather_parameters, StreamKind::parameters);
  gather.transfers = 6;
  gather.intra_node_bytes = 2'000'000;
  gather.inter_node_bytes = 3'000'000;
  EXPECT_NEAR(cost_of(gather, model), 6 * 20e-6 + 0.02 + 0.3, 1e-12);
  model.profile.contains_pipeline_communication = true;
  EXPECT_EQ(cost_of(send, model), 0);
  EXPECT_GT(cost_of(gather, model), 0);
}

TEST(Costing, HalvingBandwidthDoublesTheBytesTermAndLatencyItsOwn) {
  const CostModel model = small_model();
  Instruction reduce = make(Op::reduce_gradients, StreamKind::parameters);
  reduce.transfers = 3;
  reduce.inter_node_bytes = 5'000'000;
  CostingOptions slow;
  slow.bandwidth_scale = 0.5;
  EXPECT_NEAR(cost_of(reduce, model, slow) - cost_of(reduce, model), 0.5, 1e-12);
  CostingOptions far;
  far.latency_scale = 2;
  EXPECT_NEAR(cost_of(reduce, model, far) - cost_of(reduce, model), 3 * 20e-6, 1e-12);
  CostingOptions no_latency;
  no_latency.latency_scale = 0;
  CostingOptions both = no_latency;
  both.bandwidth_scale = 0.5;
  EXPECT_DOUBLE_EQ(cost_of(reduce, model, both), 2 * cost_of(reduce, model, no_latency));
  // Computation does not change.
  const Instruction forward = make(Op::forward, StreamKind::compute, 0);
  EXPECT_EQ(cost_of(forward, model, slow), cost_of(forward, model));
}

TEST(Costing, NormIsATreeAndTheOptimizerStepMovesTheOwnedStates) {
  const CostModel model = small_model();
  // 4 devices a node: 2 steps of 10 µs; 2 nodes: 1 step of 20 µs; there and back.
  EXPECT_NEAR(cost_of(make(Op::gradient_norm, StreamKind::collective), model),
              2 * (2 * 10e-6 + 20e-6), 1e-15);
  const double owned = std::ceil(static_cast<double>(parameter_count(model.model)) / 8);
  EXPECT_NEAR(cost_of(make(Op::optimizer_step, StreamKind::compute), model), owned * 30 / 1e9,
              1e-15);
}

TEST(Costing, WithoutCommunicationOnlyComputationTakesTime) {
  const CostModel model = small_model();
  CostingOptions options;
  options.no_communication = true;
  for (const Op op :
       {Op::gather_parameters, Op::send_activation, Op::receive_gradient, Op::reduce_gradients,
        Op::gradient_norm, Op::optimizer_step, Op::barrier, Op::offload}) {
    Instruction instruction = make(op, StreamKind::collective);
    instruction.transfers = 2;
    instruction.inter_node_bytes = 1000;
    EXPECT_EQ(cost_of(instruction, model, options), 0) << to_string(op);
  }
  EXPECT_NEAR(cost_of(make(Op::forward, StreamKind::compute, 0), model, options), kWhole / 3,
              1e-12);
}

TEST(Costing, WhatHasNoCostIsRefused) {
  const CostModel model = small_model();
  const Instruction forward = make(Op::forward, StreamKind::compute, 0);
  EXPECT_THROW(cost_of(make(Op::offload, StreamKind::host_copy), model), InputError);
  EXPECT_THROW(cost_of(make(Op::forward, StreamKind::compute, 3), model), InputError);
  Program unknown = program_of({forward});
  unknown.pipelines[0].scheme.tp = 4;
  EXPECT_THROW(instruction_durations(unknown, model), InputError);
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    CostingOptions options;
    options.bandwidth_scale = bad;
    EXPECT_THROW(cost_of(forward, model, options), InputError) << bad;
  }
  CostModel no_link = model;
  no_link.cluster.inter_node.bandwidth_bytes_per_second = 0;
  EXPECT_THROW(cost_of(forward, no_link), InputError);
}

TEST(Costing, AssumptionsNameWhatTimesContainAndTheScaledLinks) {
  CostModel model = small_model();
  CostingOptions options;
  options.bandwidth_scale = 0.5;
  const auto lines = costing_assumptions(model, options);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], "times: profile 'small', taken to contain tensor-parallel communication");
  EXPECT_EQ(lines[1],
            "network: per device and direction, inside a node 0.05 GB/s and 10 us, between nodes "
            "0.005 GB/s and 20 us, without contention");
  model.cluster.cores_per_node = 6;
  EXPECT_EQ(costing_assumptions(model, options)[1],
            "cores: 6 a node, shared by its 4 devices, which compute and move data with them");
}

}  // namespace
}  // namespace hydraulis
