#include "report/notes.h"

#include <gtest/gtest.h>

#include "costmodel/build_cost_model.h"

namespace hydraulis {
namespace {

PlanResult plan_on(const std::string& model, const std::string& cluster) {
  PlanRequest request;
  request.model = model;
  request.cluster = cluster;
  request.context = 2048;
  request.strategies = "4x(1,16,1)";
  return make_plan(request, nullptr);
}

TEST(Notes, DetailsAreShownOnlyWhenAskedForAndNothingTwice) {
  Notes notes{{"a", "b"}, {"b", "c"}, false};
  EXPECT_EQ(notes.shown(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(notes.all(), (std::vector<std::string>{"a", "b", "c"}));
  notes.verbose = true;
  EXPECT_EQ(notes.shown(), notes.all());
}

TEST(Notes, OneLineSaysSystemContentsAndNetwork) {
  const PlanResult plan = plan_on("llama-32b", "a800-64");
  CostingOptions costing;
  costing.bandwidth_scale = 2;
  const Notes notes = provenance_notes(plan, {false, true}, &costing);
  ASSERT_EQ(notes.brief.size(), 1u);
  const std::string& line = notes.brief.front();
  EXPECT_NE(line.find("llama-32b on a800-64 (default);"), std::string::npos) << line;
  EXPECT_NE(line.find("(without context parallelism or recomputation)"), std::string::npos) << line;
  EXPECT_NE(line.find("400 GB/s a device in a node, 50 GB/s between nodes"), std::string::npos)
      << line;
  EXPECT_FALSE(notes.details.empty());
  costing.no_communication = true;
  EXPECT_NE(provenance_notes(plan, {}, &costing).brief.front().find("no communication counted"),
            std::string::npos);
}

TEST(Notes, WhatLooksWrongIsNeverADetail) {
  PlanResult plan = plan_on("llama-32b", "a800-64");
  plan.model.cluster.warnings = {"suspicious: 8 times"};
  plan.model.cluster.device.name = "h100";
  const Notes notes = provenance_notes(plan, {});
  ASSERT_EQ(notes.brief.size(), 3u);
  EXPECT_NE(notes.brief[1].find("taken on a800, the cluster's devices are h100"),
            std::string::npos);
  EXPECT_EQ(notes.brief[2], "suspicious: 8 times");
}

TEST(UnusedDevices, AreCountedForEveryStrategy) {
  const auto strategies = parse_strategies("4x(1,16,1); 3x(1,16,1); 2x(1,8,1)", "test");
  EXPECT_EQ(unused_devices(strategies, 64), (std::vector<int>{0, 16, 48}));
  EXPECT_EQ(unused_devices_note(strategies, 64),
            "2 of 3 strategies leave devices unused; strategy 2, 2x(1,8,1), leaves 48 of 64");
  EXPECT_EQ(unused_devices_note({strategies[0]}, 64), "");
}

}  // namespace
}  // namespace hydraulis
