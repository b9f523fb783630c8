// The exchange of parameters and gradients beside the computation: programs, their bytes, their
// order, and the verifier's view of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "planner/program/expand.h"
#include "planner/program/lower.h"
#include "planner/program/pass_piece.h"
#include "planner/program/verify.h"
#include "tests/planner/program/program_fixture.h"

namespace hydraulis {
namespace {

using testing::cost_model;
using testing::pipeline_plan;
using testing::scheme;
using testing::tiny_model;

class Overlapped : public ::testing::Test {
 protected:
  BatchPlan unequal_pipelines() const {
    BatchPlan plan;
    plan.pipelines = {pipeline_plan(scheme(1, 1, 4), {64, 48, 32, 32, 16}),
                      pipeline_plan(scheme(1, 2, 2), {96, 80}, 5),
                      pipeline_plan(scheme(2, 2, 1), {}, 7)};
    return plan;
  }

  ModelSpec model = [] {
    ModelSpec deep = tiny_model();
    deep.layers = 10;
    return deep;
  }();
  CostModel cost = cost_model(model, 4, 4, {2, 2, 2});
};

using Moved = std::map<std::tuple<int, Op, int>, std::tuple<std::int64_t, std::int64_t, int>>;

/// What each stage moves of each layer.
Moved moved(const Program& program) {
  Moved result;
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    for (const Instruction& i : program.stages[s].instructions) {
      if (i.stream != StreamKind::parameters) continue;
      result[{static_cast<int>(s), i.op, i.layer_begin}] = {i.intra_node_bytes, i.inter_node_bytes,
                                                            i.transfers};
    }
  }
  return result;
}

TEST_F(Overlapped, MovesTheSameBytesAndVerifiesUnderEverySchedule) {
  const BatchPlan plan = unequal_pipelines();
  for (const ScheduleChoice& choice :
       {ScheduleChoice{}, ScheduleChoice{Schedule::gpipe}, ScheduleChoice{Schedule::interleaved, 2},
        ScheduleChoice{Schedule::zero_bubble_h1}}) {
    const Program apart = lower(plan, cost, choice);
    const Program beside = lower(plan, cost, choice, Overlap::on);
    EXPECT_EQ(moved(apart), moved(beside));
    EXPECT_EQ(verify(beside), std::vector<std::string>{}) << to_string(choice);
  }
}

TEST_F(Overlapped, SizeGrowsWithLayersOnce) {
  BatchPlan plan;
  for (const int micro_batches : {1, 40}) {
    plan.pipelines = {
        pipeline_plan(scheme(1, 1, 2), std::vector<std::uint32_t>(micro_batches, 16))};
    const Program apart = lower(plan, cost);
    const Program beside = lower(plan, cost, {}, Overlap::on);
    for (std::size_t s = 0; s < 2; ++s) {
      // Five layers: four more forwards and four more backwards, however many micro-batches.
      EXPECT_EQ(beside.stages[s].instructions.size(), apart.stages[s].instructions.size() + 8);
    }
  }
}

TEST_F(Overlapped, APieceWaitsForItsOwnLayersAlone) {
  BatchPlan plan;
  plan.pipelines = {pipeline_plan(scheme(1, 1, 1), {16, 16})};
  const Program program = lower(plan, cost, {}, Overlap::on);
  const std::vector<Instruction>& list = program.stages[0].instructions;
  std::vector<int> forward_layers;
  std::vector<int> reduced;
  for (const Instruction& i : list) {
    if (i.op == Op::forward && i.micro_batch == 0) {
      forward_layers.push_back(i.layer_begin);
      const Instruction& gather = list[static_cast<std::size_t>(i.depends_on.back())];
      EXPECT_EQ(gather.op, Op::gather_parameters);
      // The last layer is computed with the head.
      EXPECT_EQ(gather.layer_begin, i.layer_begin + (i.layer_end == model.layers ? 1 : 0));
    }
    if (i.op == Op::reduce_gradients) {
      reduced.push_back(i.layer_begin);
      const Instruction& backward = list[static_cast<std::size_t>(i.depends_on.front())];
      EXPECT_EQ(backward.op, Op::backward);
      EXPECT_EQ(backward.micro_batch, 1);
      EXPECT_EQ(backward.layer_begin, std::clamp(i.layer_begin, 0, model.layers - 1));
    }
  }
  EXPECT_EQ(forward_layers, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(reduced, (std::vector<int>{10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, -1}));
}

TEST_F(Overlapped, PiecesExpandToTheOperationsOfTheWhole) {
  const BatchPlan plan = unequal_pipelines();
  const Program apart = lower(plan, cost, {Schedule::interleaved, 2});
  const Program beside = lower(plan, cost, {Schedule::interleaved, 2}, Overlap::on);
  using Name = std::tuple<Op, int, int, std::uint64_t>;
  const auto operations = [&](const Program& program, std::size_t stage) {
    std::multiset<Name> names;
    for (std::size_t i = 0; i < program.stages[stage].instructions.size(); ++i) {
      const Instruction& one = program.stages[stage].instructions[i];
      if (one.op != Op::forward && one.op != Op::backward) continue;
      for (const Operation& operation :
           expand(program, model, static_cast<int>(stage), static_cast<int>(i))) {
        names.insert({one.op, one.micro_batch, one.chunk, operation.id});
      }
    }
    return names;
  };
  for (std::size_t s = 0; s < apart.stages.size(); ++s) {
    EXPECT_EQ(operations(apart, s), operations(beside, s));
  }
}

TEST_F(Overlapped, TheVerifierMissesALayerAndAWait) {
  const BatchPlan plan = unequal_pipelines();
  const Program sound = lower(plan, cost, {}, Overlap::on);
  const auto piece = [](Program& program, Op op, int layer) -> Instruction& {
    for (Instruction& i : program.stages[0].instructions) {
      if (i.op == op && piece_of(program.stages[0], i).share < 1 && i.layer_begin == layer) {
        return i;
      }
    }
    throw std::logic_error("no such piece");
  };
  const auto says = [](const Program& program, const std::string& what) {
    const std::vector<std::string> problems = verify(program);
    return std::any_of(problems.begin(), problems.end(), [&](const std::string& problem) {
      return problem.find(what) != std::string::npos;
    });
  };
  Program twice = sound;
  piece(twice, Op::forward, 1).layer_begin = 0;
  EXPECT_TRUE(says(twice, "the pieces of forward of micro-batch 0 do not go through layers 0 to"));
  Program early = sound;
  piece(early, Op::forward, 1).depends_on.clear();
  EXPECT_TRUE(says(early, "does not wait for stage 0 (pipeline 0): gather_parameters of layers 1"));
  Program outside = sound;
  piece(outside, Op::backward, 1).layer_end = 9;
  EXPECT_TRUE(says(outside, "has backward of micro-batch 4 3 times, expected once"));
  Program unreduced = sound;
  for (Instruction& i : unreduced.stages[0].instructions) {
    if (i.op == Op::reduce_gradients && i.layer_begin <= 0) i.depends_on.clear();
  }
  EXPECT_TRUE(says(unreduced, "reduce_gradients of layers 0 to 0 [instruction"));
}

}  // namespace
}  // namespace hydraulis
