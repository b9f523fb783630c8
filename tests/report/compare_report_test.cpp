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
  const Report report = compare_report({run}, {8, {{"200 Gb/s assumed"}}, true});
  const std::string text = to_text(report);
  const auto remark = text.find("static-pack: best layout 4x(1,16,1)\n");
  ASSERT_NE(remark, std::string::npos) << text;
  EXPECT_GT(text.find("\n200 Gb/s assumed\n"), remark);
  EXPECT_NE(text.find("\n200 Gb/s assumed\n"), std::string::npos) << text;
  EXPECT_EQ(report.json.at("policies")[0].at("remark"), "best layout 4x(1,16,1)");
  EXPECT_EQ(report.json.at("notes")[0], "200 Gb/s assumed");
  EXPECT_FALSE(report.json.at("policies")[0].contains("wall_seconds"));
}

TEST(CompareReport, SaysHowMuchHangsOnTheNetwork) {
  PolicyRun slow = policy("static-pack", 4, 1);
  slow.summary.exposed_communication_seconds = 1;
  PolicyRun fast = policy("hydraulis", 2, 1);
  fast.summary.exposed_communication_seconds = 0.05;
  const Report report = compare_report({slow, fast}, {8, {}, true});
  EXPECT_NE(to_text(report).find("static-pack 25.0 %, hydraulis 2.5 %\n"), std::string::npos)
      << to_text(report);
  EXPECT_EQ(report.json.at("policies")[1].at("exposed_communication_ms"), 50.0);
}

TEST(CompareReport, UnusedDevicesStandBesideTheResult) {
  PolicyRun run = policy("hydraulis", 1, 1);
  run.strategies = parse_strategies("4x(1,16,1); 3x(1,16,1)", "test");
  const Report report = compare_report({run}, {64, {}, true});
  EXPECT_EQ(report.json.at("policies")[0].at("unused_devices"), 16);
  EXPECT_NE(to_text(report).find("hydraulis: 1 of 2 strategies leave devices unused"),
            std::string::npos);
}

PolicyRun infeasible(const std::string& name, const std::string& reason) {
  PolicyRun run;
  run.name = name;
  run.infeasible = reason;
  return run;
}

TEST(CompareReport, AnInfeasiblePolicyHasARowAndItsReason) {
  const Report report =
      compare_report({policy("static-pack", 4, 1000), infeasible("hotspa", "memory: 8K too few"),
                      policy("hydraulis", 2, 2000)},
                     {8, {}, true});
  const Json& policies = report.json.at("policies");
  ASSERT_EQ(policies.size(), 3u);
  EXPECT_EQ(policies[1].at("name"), "hotspa");
  EXPECT_EQ(policies[1].at("infeasible"), "memory: 8K too few");
  EXPECT_TRUE(policies[1].at("mean_ms").is_null());
  EXPECT_FALSE(policies[0].contains("infeasible"));
  EXPECT_EQ(policies[2].at("speedup"), 2.0);
  EXPECT_EQ(report.json.at("speedup_against"), "static-pack");
  const std::string text = to_text(report);
  EXPECT_NE(text.find("hotspa is infeasible: memory: 8K too few\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("speedups are against"), std::string::npos) << text;
  EXPECT_EQ(text.find("hotspa: of the device time"), std::string::npos) << text;
  EXPECT_EQ(text.find("hotspa nan"), std::string::npos) << text;
}

TEST(CompareReport, SpeedupsAreAgainstTheFirstFeasiblePolicyAndSaySo) {
  const Report report = compare_report({infeasible("static-pack", "memory"),
                                        policy("hotspa", 3, 1000), policy("hydraulis", 2, 1500)},
                                       {8, {}, true});
  const Json& policies = report.json.at("policies");
  EXPECT_TRUE(policies[0].at("speedup").is_null());
  EXPECT_EQ(policies[1].at("speedup"), 1.0);
  EXPECT_EQ(policies[2].at("speedup"), 1.5);
  EXPECT_EQ(report.json.at("speedup_against"), "hotspa");
  EXPECT_NE(to_text(report).find("speedups are against hotspa, the first policy that is feasible"),
            std::string::npos);
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
