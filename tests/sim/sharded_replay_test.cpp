// Programs with sharded parameters in virtual time.
#include <gtest/gtest.h>

#include <functional>

#include "planner/program/lower.h"
#include "planner/program/verify.h"
#include "sim/replay.h"
#include "tests/planner/program/program_fixture.h"

namespace hydraulis {
namespace {

using testing::cost_model;
using testing::pipeline_plan;
using testing::scheme;
using testing::tiny_model;

CostModel sharded(int nodes, int per_node, ContextExchange exchange) {
  CostModel cost = cost_model(tiny_model(), nodes, per_node, {nodes * per_node, 1, 1});
  cost.sharding = ParameterSharding::sharded;
  cost.context_exchange = exchange;
  cost.memory = MemoryModel::composed;
  return cost;
}

double run_program(const Program& program,
                   const std::function<double(int, const Instruction&)>& seconds) {
  Durations durations;
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    auto& own = durations.seconds.emplace_back();
    for (const Instruction& i : program.stages[s].instructions) {
      own.push_back(seconds(static_cast<int>(s), i));
    }
  }
  return replay(program, durations).makespan_seconds;
}

// Two groups, of which one has a micro-batch more: steps keep pace with the slower group.
TEST(ShardedReplay, StepsWaitForTheSlowestGroup) {
  const CostModel cost = sharded(1, 8, ContextExchange::ring);
  BatchPlan plan;
  plan.pipelines = {pipeline_plan(scheme(4, 1, 1), {8, 32, 16}),
                    pipeline_plan(scheme(4, 1, 1), {24, 8}, 3)};
  const Program program = lower(plan, cost);
  EXPECT_TRUE(verify(program, cost).empty());
  // Forward and backward a second a token: max(8, 24) + max(32, 8) + 16, twice.
  const double seconds = run_program(program, [&](int stage, const Instruction& i) {
    if (i.op != Op::forward && i.op != Op::backward) return 0.0;
    const Stage& at = program.stages[stage];
    return static_cast<double>(
        program.pipelines[at.pipeline].micro_batches[i.micro_batch].tokens());
  });
  EXPECT_EQ(seconds, 2 * (24 + 32 + 16));
}

// One device, gathers of a second a layer against forwards of four: only the first layer's shows.
TEST(ShardedReplay, GathersHideBehindComputation) {
  const CostModel cost = sharded(1, 1, ContextExchange::ring);
  BatchPlan plan;
  plan.pipelines = {pipeline_plan(scheme(1, 1, 1), {16})};
  const Program program = lower(plan, cost);
  const auto run = [&](double compute) {
    return run_program(program, [&](int, const Instruction& i) {
      if (i.op == Op::forward || i.op == Op::backward) return compute;
      const double layers = i.layer_end - i.layer_begin;
      return i.op == Op::gather_parameters || i.op == Op::reduce_gradients ? layers : 0.0;
    });
  };
  // Six parts: embedding and four layers and head. Two before the forward, two before the backward,
  // two reduced after it.
  EXPECT_EQ(run(100), 2 + 100 + 2 + 100 + 2);
  // Nothing hides behind nothing: 6 gathered, 6 gathered again, 6 reduced.
  EXPECT_EQ(run(0), 18);
}

}  // namespace
}  // namespace hydraulis
