#include "report/compare_report.h"

#include <gtest/gtest.h>

#include <string>

namespace hydraulis {
namespace {

PolicyRun policy(const std::string& name, double mean_seconds, double tokens_per_second) {
  PolicyRun run;
  run.name = name;
  run.summary.mean_seconds = mean_seconds;
  run.summary.p95_seconds = 2 * mean_seconds;
  run.summary.tokens_per_second = tokens_per_second;
  run.summary.mfu = 0.4;
  run.summary.bubble_share = 0.1;
  run.summary.wall_seconds = mean_seconds / 7;
  return run;
}

TEST(CompareReport, HasTheStableKeysAndSpeedupsAgainstTheFirst) {
  const Json json = compare_report({policy("static-pack", 3, 1000), policy("hydraulis", 2, 1500)},
                                   {64, {}, false})
                        .json;
  const Json& first = json.at("policies")[0];
  const Json& second = json.at("policies")[1];
  EXPECT_EQ(first.at("name"), "static-pack");
  EXPECT_EQ(first.at("speedup"), 1.0);
  EXPECT_EQ(second.at("speedup"), 1.5);
  EXPECT_EQ(second.at("mean_ms"), 2000.0);
  EXPECT_EQ(second.at("p95_ms"), 4000.0);
  EXPECT_EQ(second.at("tokens_per_second"), 1500.0);
  EXPECT_EQ(second.at("mfu"), 0.4);
  EXPECT_EQ(second.at("bubble_share"), 0.1);
  EXPECT_TRUE(second.contains("wall_seconds"));
}

// 10^12 tokens at 10^6 a second are 10^6 seconds: 11.574 days, and on 64 devices 17,778 hours.
TEST(CompareReport, GivesDaysAndDeviceHoursForATrillionTokens) {
  const Report report = compare_report({policy("a", 1, 1e6)}, {64, {}, true});
  const Json& row = report.json.at("policies")[0];
  EXPECT_NEAR(row.at("days_per_trillion_tokens").get<double>(), 11.5741, 1e-4);
  EXPECT_NEAR(row.at("device_hours_per_trillion_tokens").get<double>(), 17777.78, 0.01);
  EXPECT_NE(to_text(report).find("17,778"), std::string::npos) << to_text(report);
}

TEST(CompareReport, RemarksAndNotesStandBelowTheTable) {
  PolicyRun run = policy("static-pack", 1, 1);
  run.remark = "best layout 4x(1,16,1)";
  const Report report = compare_report({run}, {8, {"200 Gb/s assumed"}, true});
  EXPECT_NE(to_text(report).find("static-pack: best layout 4x(1,16,1)\n200 Gb/s assumed\n"),
            std::string::npos);
  EXPECT_EQ(report.json.at("policies")[0].at("remark"), "best layout 4x(1,16,1)");
  EXPECT_EQ(report.json.at("notes")[0], "200 Gb/s assumed");
  EXPECT_FALSE(report.json.at("policies")[0].contains("wall_seconds"));
}

TEST(CompareReport, ARunThatTrainedNothingHasNoRates) {
  const Report report = compare_report({policy("idle", 0, 0)}, {8, {}, true});
  const Json& row = report.json.at("policies")[0];
  EXPECT_TRUE(row.at("speedup").is_null());
  EXPECT_TRUE(row.at("days_per_trillion_tokens").is_null());
  EXPECT_EQ(to_text(report).find("nan"), std::string::npos);
  EXPECT_EQ(to_text(report).find("inf"), std::string::npos);
}

}  // namespace
}  // namespace hydraulis
