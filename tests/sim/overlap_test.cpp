// What the exchange of parameters and gradients costs when it runs beside the computation.
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "planner/assignment.h"
#include "sim/iterations.h"
#include "tests/sim/small_model.h"

namespace hydraulis {
namespace {

using testing::pipeline_of;
using testing::small_model;

/// Two layers on one device, whose optimizer states lie on the device beside it. A forward takes a
/// third of a second for a thousand tokens, a backward two thirds.
class TwoBuckets : public ::testing::Test {
 protected:
  TwoBuckets() {
    model = small_model();
    model.cluster.nodes = 1;
    model.cluster.devices_per_node = 2;
    model.cluster.intra_node.latency_seconds = 0;
    model.cluster.device.memory_bandwidth_bytes_per_second = 1e30;  // the step takes no time
    model.model.layers = model.profile.model.layers = 2;
    // An embedding and a head that weigh nothing beside the layers.
    model.model.vocab = model.profile.model.vocab = 1;
    model.optimizer = {2, 1, 1};
    SchemeCoefficients known;
    known.b = 1e-3;
    model.profile.schemes = {known};
    plan.pipelines = {pipeline_of(1, 1, {{1000}, {1000}}), pipeline_of(1, 1, {})};
    // ZeRO-1 over two devices: each takes half of a layer from the other.
    layer_bytes = static_cast<double>(layer_parameters(model.model));  // 2 bytes, halved
  }

  double seconds(Overlap overlap, double gather) {
    model.cluster.intra_node.bandwidth_bytes_per_second = layer_bytes / gather;
    options.overlap = overlap;
    return simulate_iteration(plan, model, options).result.time_seconds;
  }

  CostModel model;
  BatchPlan plan;
  IterationOptions options;
  double layer_bytes = 0;
};

TEST_F(TwoBuckets, ByHand) {
  const double third = 1.0 / 3;
  // Ends of a layer's gather are at g and 2g; its forwards take f = 1/6 each, so that the first
  // micro-batch's forward is over at max(g + 2f, 2g + f). The last backward's layers take 1/3 each:
  // reductions start then, one after the other. Embedding and head add less than 2 %.
  for (const double g : {0.05, 0.1, third / 2, 0.3, 1.0}) {
    const double f = third / 2;
    const double forward = std::max(g + 2 * f, 2 * g + f);
    const double compute = forward + 2 * third /* backward */ + third /* second forward */;
    const double backward_of_last_layer = compute + third;
    const double end = std::max(backward_of_last_layer + 2 * g, compute + 2 * third + g);
    EXPECT_NEAR(seconds(Overlap::on, g), end, 0.02 * (4 * g)) << g;
    EXPECT_NEAR(seconds(Overlap::off, g), 2 + 4 * g, 0.02 * (4 * g)) << g;
  }
}

TEST_F(TwoBuckets, ExposedIsWhatComputationDoesNotCover) {
  const double g = 0.1;
  seconds(Overlap::on, g);
  const auto one = simulate_iteration(plan, model, options);
  // The first gather and the last reduction; the second pipeline has nothing to compute.
  EXPECT_NEAR(one.replay.stages[0].exposed_communication_seconds, 2 * g, 0.02 * 4 * g);
  EXPECT_NEAR(one.replay.stages[0].communication_seconds, 4 * g, 0.02 * 4 * g);
  EXPECT_NEAR(one.result.losses.whole(), model.cluster.devices() * one.result.time_seconds, 1e-9);
}

TEST(Overlap, WithoutCommunicationNothingChanges) {
  CostModel model = small_model();
  model.model.layers = model.profile.model.layers = 15;
  Random random(7);
  for (int round = 0; round < 12; ++round) {
    BatchPlan plan;
    plan.pipelines = {pipeline_of(1, 4, {}), pipeline_of(2, 1, {}), pipeline_of(1, 2, {})};
    for (PipelinePlan& pipeline : plan.pipelines) {
      for (std::uint64_t j = random.below(9); j > 0; --j) {
        pipeline.micro_batches.push_back({{j}, {static_cast<std::uint32_t>(random.below(900))}, 3});
      }
    }
    for (const ScheduleChoice& choice :
         {ScheduleChoice{}, ScheduleChoice{Schedule::zero_bubble_h1},
          ScheduleChoice{Schedule::zero_bubble}, ScheduleChoice{Schedule::interleaved, 2}}) {
      IterationOptions options;
      options.lowering = choice;
      options.costing.no_communication = true;
      const auto apart = simulate_iteration(plan, model, options);
      options.overlap = Overlap::on;
      const auto beside = simulate_iteration(plan, model, options);
      EXPECT_NEAR(apart.result.time_seconds, beside.result.time_seconds, 1e-9);
      for (std::size_t s = 0; s < apart.replay.stages.size(); ++s) {
        EXPECT_EQ(apart.replay.stages[s].peak_live_tokens,
                  beside.replay.stages[s].peak_live_tokens);
        EXPECT_EQ(apart.replay.stages[s].peak_live_micro_batches,
                  beside.replay.stages[s].peak_live_micro_batches);
      }
      // With communication it never takes longer, and losses still add up.
      options.costing.no_communication = false;
      const auto hidden = simulate_iteration(plan, model, options);
      options.overlap = Overlap::off;
      const auto shown = simulate_iteration(plan, model, options);
      EXPECT_LE(hidden.result.time_seconds, shown.result.time_seconds + 1e-9);
      EXPECT_NEAR(hidden.result.losses.whole(),
                  model.cluster.devices() * hidden.result.time_seconds, 1e-6);
    }
  }
}

}  // namespace
}  // namespace hydraulis
