#include "planner/program/lower_sharded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "planner/program/collectives.h"
#include "planner/program/lower.h"
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

CostModel sharded(int nodes, int per_node, ContextExchange exchange) {
  CostModel cost = cost_model(tiny_model(), nodes, per_node, {nodes * per_node, 1, 1});
  cost.sharding = ParameterSharding::sharded;
  cost.context_exchange = exchange;
  cost.memory = MemoryModel::composed;
  return cost;
}

TEST(Sharded, AllToAllsCountWhatLeavesTheDevice) {
  const CostModel cost = sharded(2, 2, ContextExchange::all_to_all);
  BatchPlan plan;
  plan.pipelines = {pipeline_plan(scheme(4, 1, 1), {64})};
  const Program program = lower(plan, cost);
  EXPECT_THAT(verify(program, cost), IsEmpty());
  int found = 0;
  for (const Instruction& i : program.stages[0].instructions) {
    if (i.op != Op::all_to_all) continue;
    ++found;
    // 16 tokens a device, q, k, v and output of 16 numbers, bf16, four layers; a quarter stays, a
    // quarter goes to the neighbour, half to the other node.
    const std::int64_t bytes = 16 * 4 * 16 * 2 * 4;
    EXPECT_EQ(i.intra_node_bytes, bytes / 4);
    EXPECT_EQ(i.inter_node_bytes, bytes / 2);
    EXPECT_EQ(i.transfers, 4 * 4 * 3);
  }
  EXPECT_EQ(found, 2);
  // Alone, or with rings, there is nothing to exchange.
  plan.pipelines[0].scheme.cp = 1;
  const Program alone = lower(plan, cost);
  for (const Instruction& i : alone.stages[0].instructions) {
    EXPECT_NE(i.op, Op::all_to_all);
  }
}

TEST(Sharded, EveryLayerIsGatheredTwiceAndReducedOnceAStep) {
  const CostModel cost = sharded(1, 4, ContextExchange::ring);
  BatchPlan plan;
  plan.pipelines = {pipeline_plan(scheme(2, 1, 1), {16, 16, 16}),
                    pipeline_plan(scheme(2, 1, 1), {}, 3)};
  const Program program = lower(plan, cost);
  EXPECT_THAT(verify(program, cost), IsEmpty());
  const std::int64_t whole = parameter_count(tiny_model()) * kParameterBytes * 3 / 4;
  for (const Stage& stage : program.stages) {  // the idle group as well
    std::int64_t gathered = 0, reduced = 0;
    for (const Instruction& i : stage.instructions) {
      if (i.op == Op::gather_parameters) gathered += i.intra_node_bytes;
      if (i.op == Op::reduce_gradients) reduced += i.intra_node_bytes;
    }
    EXPECT_LE(std::abs(gathered - 2 * 3 * whole), 12);
    EXPECT_LE(std::abs(reduced - 3 * whole), 6);
  }
}

TEST(Sharded, VerifierFindsAForwardWithoutItsGather) {
  const CostModel cost = sharded(1, 4, ContextExchange::ring);
  BatchPlan plan;
  plan.pipelines = {pipeline_plan(scheme(4, 1, 1), {16, 16})};
  Program program = lower(plan, cost);
  for (Instruction& i : program.stages[0].instructions) {
    if (i.op == Op::forward) i.depends_on.clear();
  }
  EXPECT_THAT(verify(program).front(), HasSubstr("gather of its first layer"));
}

TEST(Sharded, TensorAndPipelineParallelismAreRefused) {
  BatchPlan plan;
  plan.pipelines = {pipeline_plan(scheme(1, 2, 1), {16})};
  EXPECT_THROW(lower(plan, sharded(1, 4, ContextExchange::ring)), InputError);
}

TEST(Sharded, SurvivesJson) {
  const CostModel cost = sharded(1, 4, ContextExchange::all_to_all);
  BatchPlan plan;
  plan.pipelines = {pipeline_plan(scheme(4, 1, 1), {16})};
  const Json json = program_to_json(lower(plan, cost));
  const Program again = program_from_json(json, "test");
  EXPECT_EQ(again.sharding, ParameterSharding::sharded);
  EXPECT_EQ(program_to_json(again), json);
}

// NCCL's ring: 8 devices on two nodes of four; 7/8 pass inside, half of the rest over four cards.
TEST(Collectives, AllGatherUsesEveryCardOfANode) {
  ClusterSpec cluster;
  cluster.nodes = 2;
  cluster.devices_per_node = 4;
  cluster.intra_node = {100e9, 2e-6};
  cluster.inter_node = {10e9, 10e-6};
  const ReshardSummary traffic = all_gather_traffic(800e6, cluster, 1);
  EXPECT_EQ(traffic.intra_node_bytes, 700'000'000);
  EXPECT_EQ(traffic.inter_node_bytes, 100'000'000);
  EXPECT_EQ(traffic.messages, 2);  // one step of 10 us and six of 2 us, in units of 10 us
  EXPECT_NEAR(traffic_seconds(traffic, cluster), 2 * 10e-6 + 7e-3 + 10e-3, 1e-9);
}

}  // namespace
}  // namespace hydraulis
