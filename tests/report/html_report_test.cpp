#include "report/html_report.h"

#include <gtest/gtest.h>

#include <string>

#include "base/atomic_file.h"
#include "base/error.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {
namespace {

Results example() {
  Results results;
  results.name = "example";
  ResultRun run;
  run.policy = "hydraulis";
  run.settings = Json::object();
  run.devices = 16;
  run.summary.mean_seconds = 1.25;
  run.summary.tokens_per_second = 1000;
  run.strategies = {"2x(1,8,1)"};
  IterationResult iteration;
  iteration.time_seconds = 1.25;
  iteration.tokens = 1250;
  run.iterations = {iteration};
  results.runs = {run};
  return results;
}

std::string page_of(const Results& results, const HtmlContext& context) {
  const TemporaryFolder folder;
  write_html_report(results, context, folder / "page.html");
  return read_text_file(folder / "page.html");
}

/// What stands between two texts.
std::string between(const std::string& text, const std::string& from, const std::string& to) {
  const std::size_t begin = text.find(from) + from.size();
  return text.substr(begin, text.find(to, begin) - begin);
}

TEST(HtmlReport, TheDataBlockHoldsTheResults) {
  const std::string page = page_of(example(), {"a title", {"a note"}});
  const Json data =
      Json::parse(between(page, "<script type=\"application/json\" id=\"data\">", "</script>"));
  EXPECT_EQ(data["notes"], Json::array({"a note"}));
  ASSERT_EQ(data["runs"].size(), 1u);
  EXPECT_EQ(data["runs"][0]["label"], "hydraulis");
  EXPECT_EQ(data["runs"][0]["summary"]["mean_ms"], 1250.0);
  EXPECT_EQ(data["runs"][0]["iterations"]["time_ms"], Json::array({1250.0}));
  EXPECT_NE(page.find("<title>a title</title>"), std::string::npos);
}

TEST(HtmlReport, APageLoadsNothing) {
  const std::string page = page_of(example(), {"t", {}});
  for (const char* loads : {"<link rel=\"stylesheet\"", "<script src", "@import", "<img", "<iframe",
                            "fetch(", "XMLHttpRequest", "url("}) {
    EXPECT_EQ(page.find(loads), std::string::npos) << loads;
  }
  for (const char* placeholder : {"@TITLE@", "@STYLE@", "@DATA@", "@CHART@", "@SCRIPT@"}) {
    EXPECT_EQ(page.find(placeholder), std::string::npos) << placeholder;
  }
}

TEST(HtmlReport, TextsOfUsersStayTexts) {
  Results results = example();
  results.runs[0].policy = "</script><script>alert(1)</script>";
  results.runs[0].remark = "@SCRIPT@ & <b>";
  const std::string page = page_of(results, {"<script>alert(2)</script>", {}});
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  const Json data =
      Json::parse(between(page, "<script type=\"application/json\" id=\"data\">", "</script>"));
  EXPECT_EQ(data["runs"][0]["policy"], results.runs[0].policy);
  EXPECT_EQ(data["runs"][0]["remark"], results.runs[0].remark);
}

TEST(HtmlReport, TheSameResultsGiveTheSameBytes) {
  EXPECT_EQ(page_of(example(), {"t", {}}), page_of(example(), {"t", {}}));
}

TEST(HtmlReport, ManyEventsAreLeftOutAndSaidSo) {
  Results results = example();
  KeptIteration kept;
  kept.stages.resize(1);
  kept.timeline.events.resize(kMostEventsOfPage / 2 + 1);
  results.runs[0].kept = kept;
  results.runs.push_back(results.runs[0]);
  const Json data = html_data(results, {});
  EXPECT_TRUE(data["runs"][0]["kept"].contains("events"));
  EXPECT_FALSE(data["runs"][1]["kept"].contains("events"));
  ASSERT_EQ(data["notes"].size(), 1u);
  EXPECT_NE(data["notes"][0].get<std::string>().find("1 runs"), std::string::npos);
}

TEST(HtmlReport, PrintedResultsCanBeDrawnToo) {
  const Json simulated = {{"iterations", {{{"time_ms", 5.0}, {"strategy", 1}, {"tokens", 10}}}},
                          {"mean_ms", 5.0},
                          {"strategies", {"a", "b"}}};
  const Results one = results_from_json(simulated, "s.json");
  ASSERT_EQ(one.runs.size(), 1u);
  EXPECT_EQ(one.runs[0].iterations[0].strategy, 1);
  EXPECT_DOUBLE_EQ(one.runs[0].iterations[0].time_seconds, 0.005);
  const Json compared = {
      {"policies", {{{"name", "x"}, {"mean_ms", 2.0}}, {{"name", "y"}, {"infeasible", "memory"}}}},
      {"devices", 8}};
  const Results two = results_from_json(compared, "c.json");
  ASSERT_EQ(two.runs.size(), 2u);
  EXPECT_EQ(two.runs[0].policy, "x");
  EXPECT_EQ(two.runs[0].outcome, RunOutcome::done);
  EXPECT_EQ(two.runs[1].devices, 8);
  EXPECT_EQ(two.runs[1].outcome, RunOutcome::infeasible);
  EXPECT_EQ(two.runs[1].message, "memory");
  EXPECT_THROW(results_from_json({{"a", 1}}, "o.json"), InputError);
  EXPECT_THROW(results_from_json({{"iterations", {{{"strategy", 3}}}}}, "o.json"), InputError);
}

}  // namespace
}  // namespace hydraulis
