#include "sim/sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/atomic_file.h"
#include "base/error.h"
#include "planner/plan_build.h"
#include "sim/run_policy.h"
#include "tests/base/temporary_folder.h"
#include "traces/synth.h"

namespace hydraulis {
namespace {

/// 13B on 16 A800, strategies by hand, so that points take milliseconds.
Json small_sweep() {
  return {{"name", "small"},
          {"model", "llama-13b"},
          {"cluster", "a800-16"},
          {"trace", {{"preset", "commoncrawl"}, {"documents", 2000}}},
          {"strategies", "2x(1,8,1); (1,8,1)+2x(1,4,1)"},
          {"context", 16384},
          {"over_context", "truncate"},
          {"tokens_per_batch", 60000},
          {"iterations", 3},
          {"grid", Json::object()}};
}

Sweep parsed(const Json& json) { return parse_sweep(json, "sweep.json", "."); }

SweepRun swept(const Json& json, const std::filesystem::path& parts, int threads = 1) {
  SweepOptions options;
  options.threads = threads;
  options.parts = parts;
  return run_sweep(parsed(json), options);
}

TEST(Sweep, TheGridIsWalkedWithTheFirstAxisSlowest) {
  Json json = small_sweep();
  json["grid"] = {{"cluster.nodes", {2, 4}},
                  {"policy", {"static-pack", "hydraulis", "static-pad"}}};
  const Sweep sweep = parsed(json);
  EXPECT_EQ(sweep.axes, (std::vector<std::string>{"cluster.nodes", "policy"}));
  ASSERT_EQ(sweep.points.size(), 6u);
  EXPECT_EQ(sweep.points[1].axis_values, (std::vector<Json>{2, "hydraulis"}));
  EXPECT_EQ(sweep.points[3].axis_values, (std::vector<Json>{4, "static-pack"}));
}

TEST(Sweep, FieldsThatTheClusterLeavesOutCanBeSet) {
  const TemporaryFolder folder;
  Json json = small_sweep();
  json["grid"] = {{"cluster.node_inside.bandwidth_gigabits_per_second", {400}}};
  const SweepRun run = swept(json, folder / "parts");
  ASSERT_EQ(run.results.runs.size(), 1u);
  EXPECT_EQ(run.results.runs[0].outcome, RunOutcome::done) << run.results.runs[0].message;
}

// Two nodes of eight devices that share one card of a device's bandwidth: gathers over it wait.
TEST(Sweep, NetworksAreShared) {
  const TemporaryFolder folder;
  Json json = small_sweep();
  json["cluster"] = cluster_json(load_cluster("a800-16"));
  json["cluster"]["network_cards"] = {{"per_node", 8}};
  json["grid"] = {{"cluster.network_cards.per_node", {8, 1}},
                  {"network", {"closed-form", "flows", "auto"}}};
  const SweepRun run = swept(json, folder / "parts");
  ASSERT_EQ(run.results.runs.size(), 6u);
  std::vector<double> seconds;
  for (const ResultRun& one : run.results.runs) {
    ASSERT_EQ(one.outcome, RunOutcome::done) << one.message;
    seconds.push_back(one.summary.mean_seconds);
  }
  EXPECT_NEAR(seconds[1], seconds[0], 1e-9);
  EXPECT_EQ(seconds[2], seconds[0]);
  EXPECT_EQ(seconds[3], seconds[0]);
  EXPECT_GT(seconds[4], 1.02 * seconds[0]);
  EXPECT_EQ(seconds[5], seconds[4]);
  json["grid"]["network"] = {"packets"};
  const SweepRun refused = swept(json, folder / "other");
  EXPECT_NE(refused.results.runs[0].outcome, RunOutcome::done);
  EXPECT_NE(refused.results.runs[0].message.find("auto, closed-form or flows"), std::string::npos)
      << refused.results.runs[0].message;
}

// The same as planning and simulating by hand.
TEST(Sweep, APointIsWhatSimulateGives) {
  const TemporaryFolder folder;
  Json json = small_sweep();
  json["keep_iteration"] = 1;
  const SweepRun swept_run = swept(json, folder / "parts");
  ASSERT_EQ(swept_run.results.runs.size(), 1u);
  const ResultRun& run = swept_run.results.runs[0];
  ASSERT_EQ(run.outcome, RunOutcome::done) << run.message;

  LengthTrace trace = synthesize_preset("commoncrawl", 2000, 0);
  PlanRequest request;
  request.model = "llama-13b";
  request.cluster = "a800-16";
  request.context = 16384;
  request.tokens_per_batch = 60000;
  request.strategies = "2x(1,8,1); (1,8,1)+2x(1,4,1)";
  const PlanResult plan = make_plan(request, &trace);
  BatchRun batches{trace, {}, 3};
  batches.sampling.tokens_per_batch = 60000;
  batches.sampling.context = 16384;
  batches.sampling.over_context = OverContext::truncate;
  const BatchSurvey surveyed = survey(batches);
  PolicySetup setup;
  setup.model = plan.model;
  setup.set = plan.plan.set;
  setup.context = 16384;
  setup.batches = surveyed.tuning;
  const SimulatedRun expected = run_policy("hydraulis", setup, batches);
  ASSERT_EQ(run.iterations.size(), expected.result.iterations.size());
  for (std::size_t i = 0; i < run.iterations.size(); ++i) {
    EXPECT_EQ(run.iterations[i].time_seconds, expected.result.iterations[i].time_seconds);
    EXPECT_EQ(run.iterations[i].strategy, expected.result.iterations[i].strategy);
  }
  EXPECT_EQ(run.summary.mean_seconds, expected.result.summary.mean_seconds);
  EXPECT_EQ(run.devices, 16);
  ASSERT_TRUE(run.kept.has_value());
  double end = 0;
  for (const TimelineEvent& event : run.kept->timeline.events) {
    end = std::max(end, event.end_seconds);
  }
  EXPECT_DOUBLE_EQ(end, run.iterations[1].time_seconds);
}

TEST(Sweep, FieldsInsideModelClusterAndTraceCanBeVaried) {
  const TemporaryFolder folder;
  Json json = small_sweep();
  json["strategies"] = "";
  json["grid"] = {{"cluster.inter_node.bandwidth_gigabits_per_second", {50, 800}},
                  {"model.vocab", {32000, 128000}},
                  {"trace.alpha", {1.2, 2.5}}};
  const SweepRun run = swept(json, folder / "parts");
  ASSERT_EQ(run.results.runs.size(), 8u);
  const auto mean = [&](std::size_t i) { return run.results.runs[i].summary.mean_seconds; };
  for (const ResultRun& each : run.results.runs) {
    EXPECT_EQ(each.outcome, RunOutcome::done) << each.message;
  }
  const Json& last = run.results.runs[7].settings;
  EXPECT_EQ(last["cluster"]["inter_node"]["bandwidth_gigabytes_per_second"].get<double>(), 100);
  EXPECT_EQ(last["model"]["vocab"], 128000);
  EXPECT_EQ(last["trace"]["alpha"], 2.5);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_GT(mean(i), mean(i + 4)) << "a slower network";
  EXPECT_NE(mean(0), mean(1)) << "other lengths";
}

TEST(Sweep, CollectivesAreAFieldAndEveryPointSaysItsSources) {
  const TemporaryFolder folder;
  Json json = small_sweep();
  json["grid"] = {{"collectives", {"links", "auto", "star"}}};
  const std::vector<ResultRun> runs = swept(json, folder / "parts").results.runs;
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_NE(runs[0].summary.mean_seconds, runs[1].summary.mean_seconds);
  EXPECT_EQ(runs[2].outcome, RunOutcome::invalid);
  EXPECT_NE(runs[2].message.find("'collectives'"), std::string::npos) << runs[2].message;
  const auto priors = [](const ResultRun& run) {
    return std::ranges::count_if(run.provenance, [](const Json& source) {
      return source.at("source") == "prior" && source.at("what") == "gradient reductions";
    });
  };
  EXPECT_EQ(priors(runs[0]), 0);
  EXPECT_EQ(priors(runs[1]), 1);
}

TEST(Sweep, DerivedSchemesAreAField) {
  const TemporaryFolder folder;
  Json json = small_sweep();
  json["strategies"] = "2x(2,4,1)";  // rings, which the profile knows nothing of
  json["grid"] = {{"schemes", {"", "cp"}}};
  const std::vector<ResultRun> runs = swept(json, folder / "parts").results.runs;
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].outcome, RunOutcome::invalid);
  EXPECT_NE(runs[0].message.find("(2,4,1)"), std::string::npos) << runs[0].message;
  EXPECT_EQ(runs[1].outcome, RunOutcome::done) << runs[1].message;
}

TEST(Sweep, ResultsDoNotDependOnThreads) {
  const TemporaryFolder folder;
  Json json = small_sweep();
  json["grid"] = {{"seed", {0, 1, 2}}, {"policy", {"static-pack", "hydraulis"}}};
  write_results(swept(json, folder / "one", 1).results, folder / "one.h5");
  write_results(swept(json, folder / "four", 4).results, folder / "four.h5");
  EXPECT_TRUE(read_text_file(folder / "one.h5") == read_text_file(folder / "four.h5"));
}

TEST(Sweep, FinishedPointsAreNotRunAgainButChangedOnesAre) {
  const TemporaryFolder folder;
  Json json = small_sweep();
  json["grid"] = {{"seed", {0, 1}}};
  const SweepRun first = swept(json, folder / "parts");
  EXPECT_EQ(first.computed, 2u);
  const SweepRun again = swept(json, folder / "parts");
  EXPECT_EQ(again.computed, 0u);
  EXPECT_EQ(again.resumed, 2u);
  write_results(first.results, folder / "first.h5");
  write_results(again.results, folder / "again.h5");
  EXPECT_TRUE(read_text_file(folder / "first.h5") == read_text_file(folder / "again.h5"));
  folder.write("parts/point-000001.h5", "torn");
  json["iterations"] = 3;
  EXPECT_EQ(swept(json, folder / "parts").computed, 1u) << "a damaged part is run again";
  json["iterations"] = 4;
  EXPECT_EQ(swept(json, folder / "parts").computed, 2u) << "other settings are run again";
}

TEST(Sweep, SharesTogetherAreTheWhole) {
  const TemporaryFolder folder;
  Json json = small_sweep();
  json["grid"] = {{"seed", {0, 1, 2}}};
  SweepOptions options;
  options.parts = folder / "parts";
  options.shards = 2;
  std::size_t computed = 0;
  for (options.shard = 0; options.shard < 2; ++options.shard) {
    computed += run_sweep(parsed(json), options).computed;
  }
  EXPECT_EQ(computed, 3u);
  const SweepRun whole = swept(json, folder / "parts");
  EXPECT_EQ(whole.computed, 0u);
  ASSERT_EQ(whole.results.runs.size(), 3u);
  EXPECT_EQ(whole.results.runs[2].axis_values[0], 2);
}

TEST(Sweep, WhatDoesNotFitIsAnOutcomeWithItsReason) {
  const TemporaryFolder folder;
  Json json = small_sweep();
  json["grid"] = {{"context", {16384, 1000000}}, {"model.heads", {40, 39}}};
  const SweepRun run = swept(json, folder / "parts");
  ASSERT_EQ(run.results.runs.size(), 4u);
  EXPECT_EQ(run.results.runs[0].outcome, RunOutcome::done) << run.results.runs[0].message;
  EXPECT_EQ(run.results.runs[1].outcome, RunOutcome::invalid);
  EXPECT_NE(run.results.runs[1].message.find("heads"), std::string::npos);
  EXPECT_EQ(run.results.runs[2].outcome, RunOutcome::infeasible);
  EXPECT_NE(run.results.runs[2].message.find("memory"), std::string::npos);
  EXPECT_EQ(run.results.runs[2].devices, 16);
}

TEST(Sweep, WrongFilesAreRefusedByField) {
  const auto refused = [](const Json& json) {
    return message_of<InputError>([&] { parsed(json); });
  };
  Json json = small_sweep();
  json["grid"] = {{"cluter.nodes", {2}}};
  EXPECT_NE(refused(json).find("grid.cluter.nodes"), std::string::npos);
  json["grid"] = {{"policy.threads", {2}}};
  EXPECT_NE(refused(json).find("grid.policy.threads"), std::string::npos);
  json["grid"] = {{"context", Json::array()}};
  EXPECT_NE(refused(json).find("grid.context"), std::string::npos);
  json["grid"] = {{"context", {nullptr}}};
  EXPECT_NE(refused(json).find("grid.context"), std::string::npos);
  json = small_sweep();
  json.erase("trace");
  EXPECT_NE(refused(json).find("'trace' is missing"), std::string::npos);
  json = small_sweep();
  json["iteration"] = 3;
  EXPECT_NE(refused(json).find("iteration"), std::string::npos);
  json = small_sweep();
  json["grid"] = Json::object();
  for (const char* axis : {"seed", "context", "iterations", "max_tokens"}) {
    Json values = Json::array();
    for (int i = 1; i <= 40; ++i) values.push_back(i);
    json["grid"][axis] = values;
  }
  EXPECT_NE(refused(json).find("points"), std::string::npos);
}

TEST(Sweep, UnknownFieldsInsideAnObjectAreNamedByTheirPoints) {
  const TemporaryFolder folder;
  Json json = small_sweep();
  json["grid"] = {{"cluster.nodse", {2}}};
  const SweepRun run = swept(json, folder / "parts");
  EXPECT_EQ(run.results.runs[0].outcome, RunOutcome::invalid);
  EXPECT_NE(run.results.runs[0].message.find("nodse"), std::string::npos);
}

}  // namespace
}  // namespace hydraulis
