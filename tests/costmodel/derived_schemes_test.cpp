#include "costmodel/derived_schemes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "costmodel/analytic.h"
#include "costmodel/build_cost_model.h"

namespace hydraulis {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

CostModel a800_32b() {
  return make_cost_model(load_model("llama-32b"), load_cluster("a800-64"),
                         load_profile("a800-llama-32b"), MemoryModel::published, {4, 16, 1});
}

Scheme scheme(int cp, int tp, int pp, Recompute recompute = Recompute::none) {
  return {cp, tp, pp, recompute, {}};
}

TEST(RingSchemes, AreACpthOfTheWorkAndTheRingsTraffic) {
  CostModel model = a800_32b();
  const StageCost before = *stage_cost(model, scheme(1, 8, 1), 0);
  add_ring_schemes(model, std::array{2, 4});
  const StageCost ring = *stage_cost(model, scheme(2, 8, 1), 0);
  EXPECT_DOUBLE_EQ(ring.a, before.a / 2);
  // Two whole nodes: keys and values of 8 heads of 104 numbers in bf16, once in the forward and
  // twice in the backward, 60 layers, half of the tokens, over 25 GB/s.
  const double bytes = 3 * 2 * 2.0 * 8 * 104 * 60 / 2;
  EXPECT_NEAR(ring.b, before.b / 2 + bytes / 25e9, 1e-12);
  EXPECT_NEAR(ring.c, before.c + 3 * 60 * 14e-6, 1e-12);
  EXPECT_THAT(model.profile.limits, Contains(HasSubstr("context parallelism derived")));
  // Rings keep within the cluster.
  EXPECT_FALSE(stage_cost(model, scheme(8, 8, 1), 0));
  EXPECT_FALSE(stage_cost(model, scheme(4, 8, 3), 0));
}

TEST(RingSchemes, WhatTheProfileKnowsStays) {
  const ModelSpec spec = load_model("llama-7b");
  const ClusterSpec cluster = load_cluster("h100-16");
  CostModel model = make_cost_model(spec, cluster, analytic_profile(spec, cluster),
                                    MemoryModel::composed, {16, 1, 1});
  const std::size_t known = model.profile.schemes.size();
  const std::size_t limits = model.profile.limits.size();
  add_ring_schemes(model, std::array{2, 4, 8});
  EXPECT_EQ(model.profile.schemes.size(), known);
  EXPECT_EQ(model.profile.limits.size(), limits);
}

TEST(ShardedModel, TimesComeFromTheRowOfMostStages) {
  const CostModel model = a800_32b();
  const CostModel sharded = sharded_model(model, std::array{1, 8, 16}, ContextExchange::all_to_all);
  // (1,1,4) takes 0.212596087 ms a token on each of four devices.
  const StageCost whole = *stage_cost(sharded, scheme(1, 1, 1), 0);
  EXPECT_NEAR(whole.b, 4 * 0.212596087e-3, 1e-12);
  EXPECT_NEAR(whole.c, 4 * 35.99468155683377e-3, 1e-12);
  const StageCost eighth = *stage_cost(sharded, scheme(8, 1, 1), 0);
  EXPECT_DOUBLE_EQ(eighth.a, whole.a / 8);
  EXPECT_DOUBLE_EQ(eighth.b, whole.b / 8);
  EXPECT_DOUBLE_EQ(eighth.c, whole.c);
  const StageCost again = *stage_cost(sharded, scheme(8, 1, 1, Recompute::full), 0);
  EXPECT_DOUBLE_EQ(again.b, eighth.b * 4 / 3);
  EXPECT_EQ(sharded.optimizer.dp, 64);
  EXPECT_FALSE(stage_cost(sharded, scheme(1, 16, 1), 0));
}

TEST(ShardedModel, RingsCarryTheirTraffic) {
  const CostModel model = a800_32b();
  const auto b = [&](ContextExchange exchange) {
    return stage_cost(sharded_model(model, std::array{8}, exchange), scheme(8, 1, 1), 0)->b;
  };
  const StageCost ring =
      detail::ring_attention_traffic(model.model, model.cluster, scheme(8, 1, 1));
  EXPECT_NEAR(b(ContextExchange::ring) - b(ContextExchange::all_to_all), ring.b, 1e-12);
}

// 16 bytes a parameter over all devices, and what a pass has in its hands.
TEST(ShardedModel, MemoryIsAShareOfEverythingAndTheLayersInUse) {
  const CostModel sharded = sharded_model(a800_32b(), std::array{1}, ContextExchange::all_to_all);
  const ModelSpec& spec = sharded.model;
  const StageMemory memory = stage_memory(sharded, scheme(1, 1, 1), 0, 0, 0);
  const auto all = static_cast<double>(parameter_count(spec));
  const auto layer = static_cast<double>(layer_parameters(spec));
  EXPECT_NEAR(memory.optimizer, 12 * all / 64, 1e3);
  EXPECT_NEAR(memory.parameters, 2 * all / 64 + 2 * 2 * layer, 1e3);
  EXPECT_NEAR(memory.gradients, 2 * all / 64 + 2 * layer, 1e3);
  // Without sharding a device would hold all of it.
  CostModel whole = sharded;
  whole.sharding = ParameterSharding::replicated;
  EXPECT_NEAR(stage_memory(whole, scheme(1, 1, 1), 0, 0, 0).parameters, 2 * all, 1e3);
}

TEST(ShardedModel, NeedsATimeWithoutTensorParallelism) {
  CostModel model = a800_32b();
  std::erase_if(model.profile.schemes,
                [](const SchemeCoefficients& row) { return row.scheme.tp == 1; });
  EXPECT_THROW(sharded_model(model, std::array{1}, ContextExchange::ring), InfeasibleError);
}

}  // namespace
}  // namespace hydraulis
