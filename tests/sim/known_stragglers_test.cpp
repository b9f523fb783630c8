#include "sim/known_stragglers.h"

#include <gtest/gtest.h>

#include "sim/iterations.h"
#include "tests/sim/small_model.h"

namespace hydraulis {
namespace {

using testing::pipeline_of;
using testing::small_model;

Slowdown slow_node(int node, double factor) {
  Slowdown slowdown;
  slowdown.nodes = {node};
  slowdown.factor = factor;
  return slowdown;
}

TEST(KnownStragglers, NodesOfOneSpeedAreGroups) {
  ClusterSpec cluster = small_model().cluster;
  cluster.nodes = 6;
  Variance variance;
  variance.stragglers = {slow_node(2, 1.5), slow_node(5, 2), slow_node(5, 1.5), slow_node(0, 3)};
  variance.stragglers[3].count = 10;  // for a while only: nobody's plan
  Slowdown device;
  device.devices = {12};  // one of node 3 makes the node as slow
  device.factor = 1.5;
  variance.stragglers.push_back(device);
  const ClusterSpec known = with_known_stragglers(cluster, variance);
  ASSERT_EQ(known.groups.size(), 4);
  const std::vector<std::pair<int, double>> expected{{2, 1}, {2, 1.5}, {1, 1}, {1, 3}};
  for (std::size_t g = 0; g < expected.size(); ++g) {
    EXPECT_EQ(known.groups[g].nodes, expected[g].first);
    EXPECT_DOUBLE_EQ(known.groups[g].relative_speed, 1 / expected[g].second);
    EXPECT_DOUBLE_EQ(variance.contained[g], expected[g].second);
  }
  EXPECT_EQ(known.devices(), cluster.devices());
}

TEST(KnownStragglers, ClustersThatAreUnlikeAlreadyStaySo) {
  ClusterSpec cluster = small_model().cluster;
  cluster.nodes = 4;
  cluster.groups = {{2, cluster.device, 1}, {2, cluster.device, 2}};
  Variance variance;
  EXPECT_EQ(with_known_stragglers(cluster, variance).groups.size(), 2);
  EXPECT_TRUE(variance.contained.empty());
  variance.stragglers = {slow_node(3, 4)};
  const ClusterSpec known = with_known_stragglers(cluster, variance);
  ASSERT_EQ(known.groups.size(), 3);
  EXPECT_DOUBLE_EQ(known.groups[1].relative_speed, 2);
  EXPECT_DOUBLE_EQ(known.groups[2].relative_speed, 0.5);
}

TEST(KnownStragglers, TheSamePlanTakesTheSameTimeKnownOrNot) {
  BatchPlan plan;
  plan.pipelines = {pipeline_of(1, 4, {{500}, {700}}), pipeline_of(1, 4, {{600}})};
  IterationOptions options;
  options.variance.stragglers = {slow_node(1, 1.7)};
  options.variance.compute.variation = 0.1;
  const double unknown = simulate_iteration(plan, small_model(), options, 2).result.time_seconds;
  CostModel model = small_model();
  model.cluster = with_known_stragglers(model.cluster, options.variance);
  plan.pipelines[1].scheme.group = 1;
  const double known = simulate_iteration(plan, model, options, 2).result.time_seconds;
  EXPECT_NEAR(known, unknown, 1e-9 * unknown);
}

}  // namespace
}  // namespace hydraulis
