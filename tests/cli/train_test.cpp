// `hydraulis train`: what a run leaves behind, and what it does with steps that are not good.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "planner/program/timeline.h"
#include "tests/cli/train_job.h"

namespace hydraulis {
namespace {

using testing::HasSubstr;

Json set(const std::string& path, double weight = 1) {
  return {{"path", path}, {"tokenizer", "bytes"}, {"weight", weight}};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Train, LearnsAndLeavesLogsTimelineAndCheckpoint) {
  const TrainingFolder folder;
  folder.plan(2, "2x(1,1,1); (1,2,1); (1,1,2)");
  folder.run_file("run.json", {{"steps", 30},
                               {"timeline_steps", 3},
                               {"data", {{"held_out", 0.2}}},
                               {"validation", {{"every_steps", 10}, {"batches", 2}}}});
  const Outcome done = folder.trained(2, {"run.json"});
  const std::vector<std::string> lines = lines_of(done.out);
  ASSERT_GT(lines.size(), 31u);
  const std::size_t strategy = lines[0].find("strategy");
  for (std::size_t i = 1; i <= 30; ++i) {
    EXPECT_EQ(std::stoul(lines[i].substr(0, 8)), i);
    ASSERT_GT(lines[i].size(), strategy);
    EXPECT_EQ(lines[i].substr(strategy - 2, 2), "  ") << lines[i];
    EXPECT_NE(lines[i][strategy], ' ') << lines[i];
    EXPECT_EQ(lines[i].find("validation") != std::string::npos, i % 10 == 0) << lines[i];
  }
  EXPECT_THAT(done.out, HasSubstr("30 steps done\n"));
  const auto losses = folder.losses("out");
  EXPECT_LT(std::stod(losses.back()[1]), 0.6 * std::stod(losses.front()[1]));

  const Timeline timeline = read_timeline_hdf5(folder.folder() / "out/timeline.h5");
  EXPECT_EQ(timeline.origin, "measured");
  std::set<std::tuple<int, int, int>> ids;
  std::set<int> iterations;
  std::set<Op> ops;
  for (const TimelineEvent& event : timeline.events) {
    EXPECT_TRUE(ids.insert({event.iteration, event.stage, event.instruction}).second);
    EXPECT_LT(static_cast<std::size_t>(event.stage), timeline.tracks.size());
    EXPECT_LE(event.start_seconds, event.end_seconds);
    iterations.insert(event.iteration);
    ops.insert(event.op);
  }
  EXPECT_EQ(iterations, (std::set<int>{1, 2, 3}));
  for (const Op op : {Op::forward, Op::backward, Op::gather_parameters, Op::reduce_gradients}) {
    EXPECT_TRUE(ops.contains(op)) << to_string(op);
  }
}

TEST(Train, JsonLinesSayTheSame) {
  const TrainingFolder folder;
  folder.plan(1, "(1,1,1)");
  folder.run_file("run.json", {{"plan", "plan-1.json"}, {"optimizer", {{"name", "lamb"}}}});
  const Outcome done = folder.trained(1, {"run.json", "--json"});
  const auto lines = lines_of(done.out);
  ASSERT_EQ(lines.size(), 11u);
  const auto losses = folder.losses("out");
  for (std::size_t i = 0; i < 10; ++i) {
    const Json line = Json::parse(lines[i]);
    EXPECT_EQ(line.at("step"), i + 1);
    EXPECT_EQ(line.at("loss").get<double>(), std::stod(losses[i][1]));
    EXPECT_EQ(line.at("updated"), true);
  }
  const Json summary = Json::parse(lines[10]);
  EXPECT_EQ(summary.at("steps"), 10);
  EXPECT_EQ(summary.at("stopped"), false);
  EXPECT_LT(summary.at("last_loss").get<double>(), std::stod(losses[0][1])) << "LAMB learns";
}

TEST(Train, TwoSetsAreBlendedByTokens) {
  const TrainingFolder folder;
  folder.plan(2, "2x(1,1,1)");
  folder.write_texts("more.jsonl", 40);
  folder.run_file("run.json",
                  {{"data", {{"sets", {set("texts.jsonl", 3), set("more.jsonl", 1)}}}}});
  folder.trained(2, {"run.json"});
  double tokens[2] = {0, 0};
  for (const auto& row : folder.rows("out/sequences.csv", 3)) {
    tokens[std::stoull(row[1]) % 2] += std::stod(row[2]);
  }
  EXPECT_NEAR(tokens[0] / tokens[1], 3, 0.25);
}

TEST(Train, PromptsCarryNoLoss) {
  const TrainingFolder folder;
  folder.plan(2, "(1,2,1)");
  std::string text;
  for (int i = 0; i < 20; ++i) text += "{\"ask\": \"12345678\", \"say\": \"abc\"}\n";
  folder.folder().write("pairs.jsonl", text);
  folder.run_file("run.json", {{"data",
                                {{"sets", Json::array({{{"path", "pairs.jsonl"},
                                                        {"tokenizer", "bytes"},
                                                        {"prompt_field", "ask"},
                                                        {"response_field", "say"},
                                                        {"end_token", 256}}})}}}});
  folder.trained(2, {"run.json"});
  for (const auto& row : folder.rows("out/log.csv", 6)) {
    EXPECT_EQ(std::stoll(row[4]) * 12, std::stoll(row[5]) * 4) << "4 of 12 tokens are targets";
  }
}

TEST(Train, ABatchWithoutTargetsIsSkippedAndTold) {
  const TrainingFolder folder;
  folder.plan(2, "2x(1,1,1)");
  folder.folder().write("ones.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  folder.run_file(
      "run.json",
      {{"steps", 3}, {"data", {{"sets", {set("ones.jsonl")}}, {"sequences_per_batch", 2}}}});
  const Outcome done = folder.trained(2, {"run.json"});
  EXPECT_EQ(occurrences(done.err, "no token of the batch is a target; no update"), 3) << done.err;
  EXPECT_THAT(done.out, HasSubstr("3 steps done, 3 without an update"));
  const auto files = folder.rows("out/log.csv", 10);
  for (const auto& row : files) EXPECT_EQ(row[9], "0");
}

/// A run whose loss explodes after the first steps.
Json exploding(const Json& bad_steps) {
  return {{"steps", 40},
          {"optimizer", {{"learning_rate", 1e30}, {"weight_decay", 0}, {"clip_norm", 0}}},
          {"schedule", {{"decay", "constant"}}},
          {"bad_steps", bad_steps}};
}

TEST(Train, NotFiniteStepsAreSkippedUntilThereAreTooMany) {
  const TrainingFolder folder;
  folder.plan(2, "2x(1,1,1)");
  folder.run_file("run.json", exploding({{"policy", "skip"}, {"most_in_a_row", 4}}));
  const Outcome ended = folder.train(2, {"run.json"});
  expect_one_error(ended, 3, "is not finite; stopped after 4 bad steps in a row");
  EXPECT_EQ(occurrences(ended.err + ended.out, "-nan"), 0) << ended.err;
  EXPECT_EQ(occurrences(ended.err, "is not finite; the update is skipped"), 3) << ended.err;
  // The bad steps stand in the logs, and the weights before them in a checkpoint.
  const auto rows = folder.rows("out/log.csv", 10);
  ASSERT_GE(rows.size(), 4u);
  EXPECT_EQ(rows.back()[9], "0");
  const Json shown = folder.json({"checkpoint", "show", "out/checkpoints", "--verify"});
  EXPECT_EQ(shown.at("step").get<std::size_t>(), rows.size());
}

TEST(Train, ANotFiniteStepStopsTheRunIfSoAsked) {
  const TrainingFolder folder;
  folder.plan(1, "(1,1,1)");
  Json settings = exploding({{"policy", "stop"}});
  settings["plan"] = "plan-1.json";
  folder.run_file("run.json", settings);
  expect_one_error(folder.train(1, {"run.json"}), 3, "stopped as bad_steps.policy says");
}

TEST(Train, ALossThatJumpsIsSkipped) {
  const TrainingFolder folder;
  folder.plan(2, "2x(1,1,1)");
  // The rate rises until losses jump; when exactly, rounding decides.
  Json run = {{"steps", 60},
              {"optimizer", {{"learning_rate", 3.0}, {"clip_norm", 0}}},
              {"schedule", {{"decay", "constant"}, {"warmup_steps", 600}}},
              {"bad_steps", {{"spike_factor", 1.2}, {"most_in_a_row", 60}}}};
  folder.run_file("run.json", run);
  EXPECT_THAT(folder.trained(2, {"run.json"}).err, HasSubstr("jumped; the update is skipped"));
  run["output"] = "stopped";
  run["bad_steps"]["most_in_a_row"] = 1;
  folder.run_file("stopped.json", run);
  expect_one_error(folder.train(2, {"stopped.json"}), 3,
                   "jumped; stopped after 1 bad steps in a row");
}

TEST(Train, DryRunSaysMemoryStepsAndTimeWithoutRanks) {
  const TrainingFolder folder;
  folder.plan(4, "(2,1,1)+2x(1,1,1)");
  folder.run_file("run.json", {{"plan", "plan-4.json"}});
  const Json dry = folder.json({"train", "run.json", "--dry-run"});
  EXPECT_EQ(dry.at("devices"), 4);
  EXPECT_EQ(dry.at("steps"), 10);
  EXPECT_GT(dry.at("strategies").at(0).at("total_bytes").get<double>(), 0);
  EXPECT_FALSE(std::filesystem::exists(folder.folder() / "out"));
}

}  // namespace
}  // namespace hydraulis
