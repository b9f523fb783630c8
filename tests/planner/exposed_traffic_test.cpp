#include "planner/exposed_traffic.h"

#include <gtest/gtest.h>

#include "planner/assignment.h"
#include "planner/parameter_traffic.h"
#include "tests/planner/case_study.h"

namespace hydraulis {
namespace {

// Computation hides most of the parameters' traffic, the first layer's never.
TEST(ExposedTraffic, IsWhatComputationDoesNotHide) {
  CostModel model = test::case_study_model();
  for (const Strategy& strategy : test::case_study_set().strategies) {
    const double whole = parameter_traffic_seconds(strategy, model);
    const double exposed = exposed_traffic_seconds(strategy, model);
    EXPECT_GE(exposed, whole / model.model.layers * (1 - 1e-9)) << to_string(strategy);
    EXPECT_LT(exposed, 0.5 * whole) << to_string(strategy);
    AssignmentOptions options;
    EXPECT_EQ(counted_traffic_seconds(strategy, model, options), 0);
    options.count_parameter_traffic = true;
    EXPECT_EQ(counted_traffic_seconds(strategy, model, options), whole);
    options.traffic_overlaps = true;
    EXPECT_EQ(counted_traffic_seconds(strategy, model, options), exposed);
  }
  // Links a thousand times as slow: nothing to speak of is hidden.
  model.cluster.inter_node.bandwidth_bytes_per_second /= 1000;
  const Strategy first = test::case_study_set().strategies.front();
  EXPECT_GT(exposed_traffic_seconds(first, model), 0.9 * parameter_traffic_seconds(first, model));
  EXPECT_LE(exposed_traffic_seconds(first, model), parameter_traffic_seconds(first, model));
}

}  // namespace
}  // namespace hydraulis
