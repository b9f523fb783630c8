#include "sim/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace hydraulis {
namespace {

Faults parse(const char* text) { return parse_faults(Json::parse(text), "f.json"); }

std::string refusal(const char* text) {
  try {
    parse(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Faults, AWholeFileIsReadWithItsUnits) {
  const Faults faults = parse(R"({
    "seed": 5,
    "notes": "what a site measured",
    "jitter": {"compute": {"coefficient_of_variation": 0.02},
               "transfer": {"distribution": "tail", "coefficient_of_variation": 0.3,
                            "per": "iteration"}},
    "stragglers": [{"nodes": [1], "factor": 1.25},
                   {"device_share": 0.01, "factor": 2, "probability": 0.5,
                    "from_iteration": 3, "iterations": 4}],
    "slow_links": [{"devices": [3, 4], "factor": 4, "link": "inter_node"}],
    "failures": {"node_mtbf_days": 100, "weibull_shape": 0.8, "transient_share": 0.4,
                 "detection_minutes": 2, "restart_seconds": 90},
    "checkpoint": {"interval_minutes": 30, "write_gigabytes_per_second": 50,
                   "read_gigabytes_per_second_per_node": 5, "asynchronous": true,
                   "snapshot_seconds": 3},
    "recovery": {"mode": "shrink", "spare_nodes": 1, "repair_hours": 12,
                 "repair_distribution": "exponential", "least_nodes": 4}})");
  EXPECT_EQ(faults.variance.seed, 5);
  EXPECT_EQ(faults.variance.compute.law, JitterLaw::lognormal);
  EXPECT_EQ(faults.variance.compute.variation, 0.02);
  EXPECT_FALSE(faults.variance.compute.per_iteration);
  EXPECT_EQ(faults.variance.transfer.law, JitterLaw::tail);
  EXPECT_TRUE(faults.variance.transfer.per_iteration);
  ASSERT_EQ(faults.variance.stragglers.size(), 2);
  EXPECT_TRUE(faults.variance.stragglers[0].permanent());
  EXPECT_FALSE(faults.variance.stragglers[1].permanent());
  EXPECT_EQ(faults.variance.stragglers[1].count, 4);
  EXPECT_FALSE(faults.variance.slow_links[0].inside_nodes);
  EXPECT_TRUE(faults.variance.slow_links[0].between_nodes);
  EXPECT_EQ(faults.failures->node_mtbf_seconds, 100 * 86400.0);
  EXPECT_EQ(faults.failures->detection_seconds, 120);
  EXPECT_EQ(faults.checkpoint->interval_seconds, 1800);
  EXPECT_EQ(faults.recovery.mode, RecoveryMode::shrink);
  EXPECT_EQ(faults.recovery.repair_seconds, 12 * 3600.0);
  EXPECT_TRUE(faults.recovery.exponential_repair);
  EXPECT_EQ(faults.recovery.least_nodes, 4);
  // 7e9 parameters of 12 bytes: 84 GB at 50 GB/s; read by 8 nodes at 5 GB/s each.
  EXPECT_DOUBLE_EQ(checkpoint_write_seconds(*faults.checkpoint, 7e9, 12, 8), 84.0 / 50);
  EXPECT_DOUBLE_EQ(checkpoint_read_seconds(*faults.checkpoint, 7e9, 12, 8), 84.0 / 40);
}

TEST(Faults, AnEmptyFileSaysNothing) {
  const Faults faults = parse("{}");
  EXPECT_FALSE(faults.variance.any());
  EXPECT_FALSE(faults.failures);
  EXPECT_FALSE(faults.checkpoint);
}

TEST(Faults, TheSlowestOfStorageAndNodesWrites) {
  CheckpointModel checkpoint;
  checkpoint.write_bandwidth = 100;
  checkpoint.write_bandwidth_per_node = 20;
  EXPECT_DOUBLE_EQ(checkpoint_write_seconds(checkpoint, 1000, 1, 2), 25);
  EXPECT_DOUBLE_EQ(checkpoint_write_seconds(checkpoint, 1000, 1, 10), 10);
  EXPECT_DOUBLE_EQ(checkpoint_read_seconds(checkpoint, 1000, 1, 2), 25);  // as it was written
  checkpoint.bytes_per_parameter = 2;
  EXPECT_DOUBLE_EQ(checkpoint_write_seconds(checkpoint, 1000, 1, 10), 20);
  checkpoint.write_seconds = 7;
  EXPECT_DOUBLE_EQ(checkpoint_write_seconds(checkpoint, 1000, 1, 10), 7);
}

TEST(Faults, WhatIsWrongIsNamedInOneLine) {
  using ::testing::HasSubstr;
  for (
      const auto& [text, expected] : std::initializer_list<std::pair<const char*, const char*>>{
          {R"({"jiter": {}})", "jiter"},
          {R"([])", "f.json"},
          {R"({"seed": -1})", "seed"},
          {R"({"jitter": {"compute": {}}})", "jitter.compute.coefficient_of_variation"},
          {R"({"jitter": {"compute": {"coefficient_of_variation": -0.1}}})", "expected 0 to 10"},
          {R"({"jitter": {"compute": {"coefficient_of_variation": 0.6,
                                       "distribution": "uniform"}}})",
           "expected 0 to 0.57735"},
          {R"({"jitter": {"compute": {"coefficient_of_variation": 0.1, "distribution": "normal"}}})",
           "expected lognormal, uniform or tail"},
          {R"({"jitter": {"transfer": {"coefficient_of_variation": 0.1, "per": "day"}}})",
           "expected instruction or iteration"},
          {R"({"stragglers": {}})", "expected a list"},
          {R"({"stragglers": [{"factor": 2}]})", "stragglers[0]' names nobody"},
          {R"({"stragglers": [{"factor": 2, "nodes": [1], "devices": [2]}]})", "names several"},
          {R"({"stragglers": [{"factor": 2, "nodes": [-1]}]})", "stragglers[0].nodes"},
          {R"({"stragglers": [{"factor": 2, "nodes": []}]})", "stragglers[0].nodes"},
          {R"({"stragglers": [{"factor": 0.5, "nodes": [1]}]})", "expected 1 to"},
          {R"({"stragglers": [{"factor": 2, "nodes": [1], "link": "all"}]})", "link"},
          {R"({"slow_links": [{"factor": 2, "nodes": [1], "link": "wan"}]})", "inter_node"},
          {R"({"failures": {}})", "node_mtbf_hours"},
          {R"({"failures": {"node_mtbf_hours": 0}})", "at least 1 second"},
          {R"({"failures": {"node_mtbf_hours": 5, "node_mtbf_days": 1}})", "two units"},
          {R"({"failures": {"node_mtbf_hours": 5, "weibull_shape": 0}})", "weibull_shape"},
          {R"({"checkpoint": {}})", "write_seconds or a bandwidth"},
          {R"({"checkpoint": {"write_seconds": 5, "write_gigabytes_per_second": 5}})",
           "write_seconds or a bandwidth"},
          {R"({"checkpoint": {"write_seconds": 5, "interval_hours": 1,
                               "interval_iterations": 5}})",
           "interval_iterations"},
          {R"({"checkpoint": {"write_seconds": 5, "interval_hours": 0}})", "interval"},
          {R"({"checkpoint": {"write_seconds": 5, "snapshot_seconds": 1}})", "asynchronous"},
          {R"({"checkpoint": {"write_gigabytes_per_second": 0}})", "write_gigabytes_per_second"},
          {R"({"recovery": {}})", "recovery"},
          {R"({"failures": {"node_mtbf_days": 9}, "recovery": {"mode": "wait"}})",
           "replace or shrink"},
          {R"({"failures": {"node_mtbf_days": 9}, "recovery": {"least_nodes": 3}})",
           "least_nodes"}}) {
    const std::string message = refusal(text);
    EXPECT_THAT(message, HasSubstr(expected)) << text;
    EXPECT_THAT(message, HasSubstr("f.json")) << text;
  }
}

}  // namespace
}  // namespace hydraulis
