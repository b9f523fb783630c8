#include "planner/program/phases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "planner/program/program_json.h"
#include "planner/program/verify.h"
#include "tests/planner/program/program_fixture.h"

namespace hydraulis {
namespace {

using testing::cost_model;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::pipeline_plan;
using testing::scheme;
using testing::tiny_model;

/// Two phases on eight devices of one node: 8 x (1,1,1), then 4 x (1,2,1).
BatchPlan two_phases() {
  BatchPlan plan;
  for (int i = 0; i < 8; ++i) plan.pipelines.push_back(pipeline_plan(scheme(1, 1, 1), {16}, i));
  for (int i = 0; i < 4; ++i) {
    plan.pipelines.push_back(pipeline_plan(scheme(1, 2, 1), {32}, 8 + i));
    plan.pipelines.back().phase = 1;
  }
  return plan;
}

std::int64_t moved(const Stage& stage, Op op) {
  std::int64_t bytes = 0;
  for (const Instruction& i : stage.instructions) {
    if (i.op == op) bytes += i.intra_node_bytes + i.inter_node_bytes;
  }
  return bytes;
}

int count(const Stage& stage, Op op) {
  return static_cast<int>(
      std::count_if(stage.instructions.begin(), stage.instructions.end(),
                    [op](const Instruction& instruction) { return instruction.op == op; }));
}

int in_place(const Program& program, const Stage& stage) {
  return static_cast<int>(std::ranges::count_if(
      stage.instructions, [&](const Instruction& i) { return stays_in_place(program, stage, i); }));
}

TEST(Phases, VerifyAndStepOnce) {
  const CostModel cost = cost_model(tiny_model(), 1, 8, {4, 2, 1});
  const Program program = lower(two_phases(), cost);
  EXPECT_THAT(verify(program, cost), IsEmpty());
  for (const Stage& stage : program.stages) {
    EXPECT_EQ(count(stage, Op::barrier), 1);
    EXPECT_EQ(count(stage, Op::gradient_norm), 1);
    EXPECT_EQ(count(stage, Op::optimizer_step), stage.pipeline < 8 ? 0 : 1);
  }
}

// After the first phase every device has all parameters: halves need nothing moved.
TEST(Phases, ParametersComeFromThePhaseBefore) {
  const CostModel cost = cost_model(tiny_model(), 1, 8, {4, 2, 1});
  const Program program = lower(two_phases(), cost);
  for (const Stage& stage : program.stages) {
    const bool first = stage.pipeline < 8;
    EXPECT_EQ(moved(stage, Op::gather_parameters) > 0, first);
    EXPECT_GT(moved(stage, Op::reduce_gradients), 0);  // the layout changes: gradients go home
    EXPECT_EQ(in_place(program, stage), 0);            // halves are copied out all the same
  }
  // The other way round every device lacks the half that its neighbour has.
  BatchPlan plan = two_phases();
  std::rotate(plan.pipelines.begin(), plan.pipelines.begin() + 8, plan.pipelines.end());
  for (std::size_t k = 0; k < plan.pipelines.size(); ++k) plan.pipelines[k].phase = k < 4 ? 0 : 1;
  const Program back = lower(plan, cost);
  EXPECT_THAT(verify(back, cost), IsEmpty());
  const ModelSpec model = tiny_model();
  const std::int64_t norms = (2 * model.layers + 1) * model.hidden;  // on every device already
  const std::int64_t half = (parameter_count(model) - norms) / 2 * kParameterBytes;
  for (const Stage& stage : back.stages) {
    if (stage.pipeline < 4) continue;
    EXPECT_EQ(moved(stage, Op::gather_parameters), half);
  }
}

TEST(Phases, GradientsStayWhereTheLayoutDoes) {
  BatchPlan plan;
  for (int phase = 0; phase < 3; ++phase) {
    for (int i = 0; i < 4; ++i) {
      plan.pipelines.push_back(pipeline_plan(scheme(1, 2, 1), {16}, 4 * phase + i));
      plan.pipelines.back().phase = phase;
    }
  }
  const CostModel cost = cost_model(tiny_model(), 1, 8, {4, 2, 1});
  const Program program = lower(plan, cost);
  EXPECT_THAT(verify(program, cost), IsEmpty());
  for (const Stage& stage : program.stages) {
    const int phase = program.pipelines[stage.pipeline].phase;
    EXPECT_EQ(moved(stage, Op::gather_parameters) > 0, phase == 0);
    EXPECT_EQ(moved(stage, Op::reduce_gradients) > 0, phase == 2);
    EXPECT_EQ(count(stage, Op::barrier), 2);
    const int gathers = phase > 0 ? count(stage, Op::gather_parameters) : 0;
    const int reductions = phase < 2 ? count(stage, Op::reduce_gradients) : 0;
    EXPECT_EQ(in_place(program, stage), gathers + reductions);
  }
}

// An odd number of layers on unequal stages: every layer comes from where it was.
TEST(Phases, StagesOfOtherSizesExchangeWhatTheyLack) {
  ModelSpec model = tiny_model();
  model.layers = 5;
  const CostModel cost = cost_model(model, 2, 4, {2, 2, 2});
  BatchPlan plan;
  plan.pipelines = {pipeline_plan(scheme(1, 2, 4), {16, 16})};
  for (int i = 0; i < 2; ++i) {
    plan.pipelines.push_back(pipeline_plan(scheme(1, 2, 2), {16, 16}, 2 + 2 * i));
    plan.pipelines.back().phase = 1;
  }
  const Program program = lower(plan, cost);
  EXPECT_THAT(verify(program, cost), IsEmpty());
  for (int s = 4; s < 8; ++s) EXPECT_GT(moved(program.stages[s], Op::gather_parameters), 0) << s;
}

TEST(Phases, OrderIsChecked) {
  BatchPlan plan = two_phases();
  plan.pipelines.back().phase = 3;
  const CostModel cost = cost_model(tiny_model(), 1, 8, {4, 2, 1});
  EXPECT_THROW(lower(plan, cost), InputError);
  plan.pipelines.back().phase = 0;
  EXPECT_THROW(lower(plan, cost), InputError);
}

TEST(Phases, VerifierFindsAStepTooEarlyAndWorkAheadOfItsPhase) {
  const CostModel cost = cost_model(tiny_model(), 1, 8, {4, 2, 1});
  Program program = lower(two_phases(), cost);
  Program early = program;
  early.stages[0].instructions.push_back(early.stages.back().instructions.back());
  early.stages[0].instructions.back().depends_on.clear();
  EXPECT_THAT(verify(early).front(), HasSubstr("before the last phase"));
  for (Instruction& i : program.stages.back().instructions) {
    if (i.op == Op::gather_parameters) i.depends_on.clear();
  }
  EXPECT_THAT(verify(program).front(), HasSubstr("does not wait for"));
}

TEST(Phases, SurviveJson) {
  const CostModel cost = cost_model(tiny_model(), 1, 8, {4, 2, 1});
  const Program program = lower(two_phases(), cost);
  const Json json = program_to_json(program);
  const Program again = program_from_json(json, "test");
  EXPECT_EQ(program_to_json(again), json);
  EXPECT_EQ(again.pipelines.back().phase, 1);
  Json bad = json;
  bad["pipelines"][11].erase("phase");
  EXPECT_THROW(program_from_json(bad, "test"), InputError);
}

}  // namespace
}  // namespace hydraulis
