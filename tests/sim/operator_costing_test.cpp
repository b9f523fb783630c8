#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "costmodel/build_cost_model.h"
#include "costmodel/compose.h"
#include "planner/program/lower.h"
#include "sim/costing.h"
#include "tests/costmodel/synthetic_machine.h"
#include "tests/sim/small_model.h"

namespace hydraulis {
namespace {

using testing::measure;
using testing::pipeline_of;
using testing::SyntheticMachine;
using testing::tiny_cluster;
using testing::tiny_model;

CostModel composed_model() {
  return make_cost_model(
      tiny_model(), tiny_cluster(1, 4),
      operator_profile(measured_operators(measure(SyntheticMachine(), tiny_model()), "test")),
      MemoryModel::composed, {4, 1, 1});
}

struct Costed {
  Program program;
  Durations durations;

  double first(int stage, Op op) const {
    const auto& instructions = program.stages[static_cast<std::size_t>(stage)].instructions;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      if (instructions[i].op == op) return durations.seconds[static_cast<std::size_t>(stage)][i];
    }
    ADD_FAILURE() << "no " << to_string(op);
    return 0;
  }
};

Costed costed(const CostModel& model, const CostingOptions& options = {}) {
  BatchPlan plan;
  plan.pipelines = {pipeline_of(1, 2, {{600, 400}, {1000}}), pipeline_of(2, 1, {{512}, {512}})};
  Costed result{lower(plan, model), {}};
  result.durations = instruction_durations(result.program, model, options);
  return result;
}

TEST(OperatorCosting, ForwardAndBackwardAreTheProfilesOwn) {
  const CostModel model = composed_model();
  const Costed run = costed(model);
  for (const int stage : {0, 1}) {
    const Scheme scheme = run.program.pipelines[0].scheme;
    const double squares = 600. * 600 + 400. * 400;
    const double forward = forward_cost(model, scheme, stage)->of(squares, 1000);
    const double whole = stage_cost(model, scheme, stage)->of(squares, 1000);
    EXPECT_NEAR(run.first(stage, Op::forward), forward, 1e-15);
    EXPECT_NEAR(run.first(stage, Op::backward), whole - forward, 1e-15);
    EXPECT_GT(forward / whole, 0.25);
    EXPECT_LT(forward / whole, 0.4);
  }
  EXPECT_GT(run.first(1, Op::forward), run.first(0, Op::forward)) << "the head is on the last";
}

TEST(OperatorCosting, MessagesFollowTheMeasuredCurveInTheMeasuredWidth) {
  const CostModel model = composed_model();
  const Costed run = costed(model);
  // 1,000 tokens of 256 numbers of 4 bytes at 4 GB/s and 5 microseconds.
  EXPECT_NEAR(run.first(0, Op::send_activation), 5e-6 + 1000. * 256 * 4 / 4e9, 1e-8);
  EXPECT_NEAR(run.first(1, Op::receive_activation), run.first(0, Op::send_activation), 1e-15);
  CostingOptions half;
  half.bandwidth_scale = 0.5;
  EXPECT_NEAR(costed(model, half).first(0, Op::send_activation), 5e-6 + 2 * 1000. * 256 * 4 / 4e9,
              1e-8);
  CostingOptions none;
  none.no_communication = true;
  const Costed alone = costed(model, none);
  EXPECT_EQ(alone.first(0, Op::send_activation), 0);
  EXPECT_EQ(alone.first(0, Op::optimizer_step), 0);
  EXPECT_EQ(alone.first(0, Op::forward), run.first(0, Op::forward));
}

TEST(OperatorCosting, OptimizerAndNormFollowTheirKernels) {
  const CostModel model = composed_model();
  const Costed run = costed(model);
  const SyntheticMachine machine;
  KernelShape row;
  row.kernel = Kernel::adamw;
  row.width = 1;
  const double owned = static_cast<double>(parameter_count(model.model)) / 4;
  EXPECT_NEAR(run.first(0, Op::optimizer_step) / machine.seconds(row, owned, 0), 1, 0.02);
  // An all-reduce of a few bytes over four: six steps.
  EXPECT_NEAR(run.first(0, Op::gradient_norm), 6 * 5e-6 + machine.seconds(row, owned, 0),
              0.03 * run.first(0, Op::gradient_norm));
  EXPECT_GT(run.first(0, Op::reduce_gradients), run.first(0, Op::gather_parameters) / 10);
  EXPECT_THAT(costing_assumptions(model),
              ::testing::Contains(::testing::HasSubstr("measured curves")));
}

}  // namespace
}  // namespace hydraulis
