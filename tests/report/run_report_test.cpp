#include "report/run_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace hydraulis {
namespace {

RunResult example() {
  RunResult run;
  run.iterations.resize(3);
  for (int i = 0; i < 3; ++i) {
    auto& iteration = run.iterations[static_cast<std::size_t>(i)];
    iteration.time_seconds = 1.5 + i;
    iteration.strategy = i % 2;
    iteration.tokens = 1000u + static_cast<std::uint64_t>(i);
    iteration.bubble_share = 0.25;
    iteration.mfu = 0.5;
  }
  run.summary.mean_seconds = 2.5;
  run.summary.p95_seconds = 3.5;
  run.summary.tokens_per_second = 400.4;
  run.summary.mfu = 0.5;
  run.summary.bubble_share = 0.25;
  run.summary.wall_seconds = 0.125;
  run.summary.events = 77;
  return run;
}

RunContext context(bool reproducible) {
  return {parse_strategies("4x(1,16,1); (1,16,1)+6x(1,8,1)", "test"),
          {{"a note"}, {"a detail"}},
          reproducible,
          64};
}

std::string written(void (*write)(const Report&, const TextSink&), const Report& report) {
  std::string text;
  write(report, [&text](std::string_view part) { text += part; });
  return text;
}

TEST(RunReport, LossesAddUpAndTokensHaveTheirPrice) {
  RunResult run = example();
  run.summary.losses = {5, 1, 0.5, 0.5, 1.5, 1, 0.5};
  RunContext how = context(true);
  Json json = Json::parse(written(write_json, run_report(run, how)));
  double whole = 0;
  for (const auto& [name, share] : json.at("losses").items()) whole += share.get<double>();
  EXPECT_NEAR(whole, 1, 1e-12);
  EXPECT_DOUBLE_EQ(json.at("losses").at("work"), 0.5);
  EXPECT_DOUBLE_EQ(json.at("losses").at("straggler"), 0.1);
  EXPECT_TRUE(json.at("cost_per_billion_tokens").is_null());
  EXPECT_TRUE(json.at("out_of_memory_share").is_null());
  EXPECT_FALSE(json.contains("critical_path"));
  // 400 tokens/s on 2 devices of 500 W at 3 an hour: 2.5e6 s each.
  run.summary.tokens_per_second = 400;
  how.rates = {2, 500, 3};
  how.counts_out_of_memory = true;
  json = Json::parse(written(write_json, run_report(run, how)));
  const double hours = 2.5e6 / 3600 * 2;
  EXPECT_DOUBLE_EQ(json.at("device_hours_per_billion_tokens"), hours);
  EXPECT_DOUBLE_EQ(json.at("kilowatt_hours_per_billion_tokens"), hours / 2);
  EXPECT_DOUBLE_EQ(json.at("cost_per_billion_tokens"), hours * 3);
  EXPECT_EQ(json.at("out_of_memory_share"), 0);
}

TEST(RunReport, HasTheStableKeys) {
  const RunResult run = example();
  const Json json = Json::parse(written(write_json, run_report(run, context(false))));
  ASSERT_EQ(json.at("iterations").size(), 3u);
  EXPECT_EQ(json.at("iterations")[1].at("time_ms"), 2500.0);
  EXPECT_EQ(json.at("iterations")[1].at("strategy"), 1);
  EXPECT_EQ(json.at("iterations")[1].at("tokens"), 1001);
  EXPECT_EQ(json.at("iterations")[1].at("bubble_share"), 0.25);
  EXPECT_EQ(json.at("mean_ms"), 2500.0);
  EXPECT_EQ(json.at("p95_ms"), 3500.0);
  EXPECT_EQ(json.at("tokens_per_second"), 400.4);
  EXPECT_EQ(json.at("mfu"), 0.5);
  EXPECT_EQ(json.at("wall_seconds"), 0.125);
  EXPECT_EQ(json.at("events"), 77);
  EXPECT_EQ(json.at("strategies")[1], "(1,16,1)+6x(1,8,1)");
}

TEST(RunReport, MeasuredTimesAreLeftOutWhenReproducible) {
  RunResult first = example();
  RunResult second = example();
  second.summary.wall_seconds = 9;
  const Report a = run_report(first, context(true));
  const Report b = run_report(second, context(true));
  EXPECT_FALSE(a.json.contains("wall_seconds"));
  EXPECT_EQ(to_text(a.json), to_text(b.json));
  EXPECT_EQ(to_text(a), to_text(b));
  EXPECT_NE(to_text(run_report(first, context(false))),
            to_text(run_report(second, context(false))));
}

TEST(RunReport, MemoryIsShownOnlyWhereItWasCounted) {
  RunResult run = example();
  EXPECT_TRUE(run_report(run, context(true)).json.at("memory_bytes").is_null());
  EXPECT_EQ(to_text(run_report(run, context(true))).find("GiB"), std::string::npos);
  run.summary.memory_bytes = 2.0 * 1024 * 1024 * 1024;
  EXPECT_EQ(run_report(run, context(true)).json.at("memory_bytes"), run.summary.memory_bytes);
  EXPECT_NE(to_text(run_report(run, context(true))).find("2.000  GiB"), std::string::npos);
}

TEST(RunReport, CsvHasARowAnIterationAndTextTheChoices) {
  const RunResult run = example();
  const Report report = run_report(run, context(true));
  EXPECT_EQ(written(write_csv, report),
            "iteration,time_ms,strategy,tokens,bubble_share,mfu\n"
            "0,1500,0,1000,0.25,0.5\n1,2500,1,1001,0.25,0.5\n2,3500,0,1002,0.25,0.5\n");
  const std::string text = to_text(report);
  EXPECT_NE(text.find("     0: 0 1 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("4x(1,16,1)"), std::string::npos) << text;
  EXPECT_NE(text.find("a note\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("iteration  time ms"), std::string::npos) << text;
}

TEST(RunReport, AnEmptyRunIsStillWellFormed) {
  const RunResult run;
  const Report report = run_report(run, {});
  EXPECT_EQ(Json::parse(written(write_json, report)).at("iterations").size(), 0u);
  EXPECT_EQ(written(write_csv, report), "iteration,time_ms,strategy,tokens,bubble_share,mfu\n");
  EXPECT_FALSE(to_text(report).empty());
}

// The rows are written one by one; the document is what dumping it as a whole gives.
TEST(RunReport, WritesTheSameDocumentPieceByPiece) {
  RunResult run = example();
  run.iterations.resize(5000);
  const Report report = run_report(run, context(true));
  const std::string text = written(write_json, report);
  const Json whole = Json::parse(text);
  EXPECT_EQ(whole.begin().key(), "iterations");
  EXPECT_EQ(whole.at("iterations").size(), 5000u);
  EXPECT_EQ(to_text(whole), text);
  const std::string csv = written(write_csv, report);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5001);
  const std::string people = to_text(report);
  EXPECT_NE(people.find("and 4000 more iterations"), std::string::npos) << people;
}

TEST(RunReport, AFullDiskEndsTheWriting) {
  RunResult run = example();
  run.iterations.resize(100000);
  int pieces = 0;
  const auto full = [&pieces](std::string_view) {
    if (++pieces == 2) throw std::runtime_error("full");
  };
  EXPECT_THROW(write_json(run_report(run, context(true)), full), std::runtime_error);
  EXPECT_EQ(pieces, 2);
}

}  // namespace
}  // namespace hydraulis
