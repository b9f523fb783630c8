// `goodput`, and --faults of `simulate` and `compare`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/cli/command.h"

namespace hydraulis {
namespace {

using Arguments = std::vector<std::string>;

/// A folder with lengths.txt, a plan made by hand for 8 nodes of 8, and faults.json.
class GoodputCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    write_lengths(command_.folder());
    const Outcome plan = command_.run(hand_plan());
    ASSERT_EQ(plan.code, 0) << plan.err;
    write_faults(R"({"failures": {"node_mtbf_days": 20, "detection_seconds": 60,
                                  "restart_seconds": 300},
                     "checkpoint": {"write_seconds": 40},
                     "recovery": {"spare_nodes": 1, "repair_hours": 12}})");
  }

  void write_faults(const std::string& text) const { command_.folder().write("faults.json", text); }

  static Arguments with_plan(const std::string& subcommand, const Arguments& more = {}) {
    Arguments arguments = {subcommand,           "--plan", "plan.json",    "--trace", "lengths.txt",
                           "--tokens-per-batch", "100000", "--iterations", "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static Arguments goodput(const Arguments& more = {}) {
    Arguments arguments = with_plan("goodput", {"--faults", "faults.json", "--replications", "8"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  Command command_;
};

TEST_F(GoodputCommand, TellsWhatIsLeftAndWhereTheRestWent) {
  const Json json = command_.json(goodput({"--days", "10"}));
  double shares = 0;
  for (const auto& part : json["wall_time"]) shares += part["share"].get<double>();
  EXPECT_NEAR(shares, 1, 1e-9);
  const double share = json["goodput"];
  EXPECT_GT(share, 0.5);
  EXPECT_LT(share, 1);
  EXPECT_NEAR(share, json["wall_time"]["useful"]["share"], 0.01);
  EXPECT_NEAR(
      json["tokens_per_second"].get<double>() / json["fault_free_tokens_per_second"].get<double>(),
      share, 0.02);
  EXPECT_DOUBLE_EQ(json["job_mtbf_seconds"], 20 * 86400.0 / 8);
  // √(2 · 40 s · 2.5 days), and the interval that was used is the one found.
  const Json& intervals = json["intervals"];
  EXPECT_NEAR(intervals["young_seconds"], std::sqrt(2 * 40 * 216000.0), 1e-6);
  EXPECT_EQ(json["checkpoint"]["interval_seconds"], intervals["found_seconds"]);
  EXPECT_GT(intervals["tries"].size(), 10);
  EXPECT_THAT(command_.run(goodput()).out, ::testing::HasSubstr("waiting for repair"));
}

TEST_F(GoodputCommand, WithoutFailuresOnlyCheckpointsCost) {
  write_faults(R"({"checkpoint": {"write_seconds": 50, "interval_iterations": 10}})");
  const Json json = command_.json(goodput());
  const double iteration = json["clusters"][0]["mean_ms"].get<double>() / 1e3;
  EXPECT_NEAR(json["goodput"], 1 / (1 + 50 / (10 * iteration)), 2e-3);
  EXPECT_TRUE(json["intervals"].is_null());
  EXPECT_TRUE(json["job_mtbf_seconds"].is_null());
}

TEST_F(GoodputCommand, IsReproducibleOnAnyNumberOfThreads) {
  const Outcome one = command_.run(goodput({"--reproducible", "--json", "--threads", "1"}));
  const Outcome three = command_.run(goodput({"--reproducible", "--json", "--threads", "3"}));
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, three.out);
  EXPECT_THAT(one.out, ::testing::Not(::testing::HasSubstr("simulated_days_per_second")));
}

TEST_F(GoodputCommand, ShrinksByPlansForFewerNodes) {
  write_faults(R"({"failures": {"node_mtbf_days": 20},
                   "checkpoint": {"write_seconds": 40, "interval_minutes": 20},
                   "recovery": {"mode": "shrink", "repair_hours": 24, "least_nodes": 6}})");
  const Json json = command_.json(goodput({"--no-search"}));
  // No layout of 7 nodes holds sequences this long; the job runs on 6 of them.
  ASSERT_EQ(json["clusters"].size(), 3);
  const auto rate = [&](std::size_t i) -> double {
    return json["clusters"][i]["tokens_per_second"];
  };
  EXPECT_EQ(json["clusters"][1]["nodes"], 7);
  EXPECT_EQ(json["clusters"][2]["nodes"], 6);
  EXPECT_LT(rate(1), rate(0));
  EXPECT_LE(rate(2), rate(1));
  EXPECT_GT(json["wall_time"]["degraded"]["share"], 0);
  EXPECT_TRUE(json["intervals"].is_null());
}

TEST_F(GoodputCommand, BadInputIsOneLine) {
  expect_refused(command_.run(with_plan("goodput")), 2, "--faults");
  expect_refused(command_.run(goodput({"--days", "0"})), 2, "--days");
  expect_refused(command_.run(goodput({"--replications", "1"})), 2, "--replications");
  write_faults(R"({"failures": {"node_mtbf_days": 20}})");
  expect_refused(command_.run(goodput()), 2, "checkpoint");
  write_faults(R"({"seed": 1})");
  expect_refused(command_.run(goodput()), 2, "neither failures nor checkpoint");
  write_faults(R"({"checkpoint": {"write_seconds": 50}})");
  expect_refused(command_.run(goodput()), 2, "interval");
  write_faults(R"({"stragglers": [{"nodes": [8], "factor": 2}]})");
  for (const char* subcommand : {"simulate", "compare"}) {
    expect_refused(command_.run(with_plan(subcommand, {"--faults", "faults.json"})), 2,
                   "stragglers[0].nodes' names 8, expected 0 to 7");
  }
  write_faults("{");
  expect_refused(command_.run(goodput()), 2, "faults.json");
  expect_refused(
      command_.run(with_plan("simulate", {"--faults", "faults.json", "--known-stragglers"})), 2,
      "--known-stragglers");
  expect_refused(command_.run(with_plan("simulate", {"--known-stragglers"})), 2, "--faults");
}

TEST_F(GoodputCommand, NoJitterIsByteIdenticalToNoFaults) {
  write_faults(R"({"jitter": {"compute": {"coefficient_of_variation": 0}}})");
  const Arguments quiet = {"--reproducible", "--json"};
  Arguments faulty = quiet;
  faulty.insert(faulty.end(), {"--faults", "faults.json"});
  EXPECT_EQ(command_.run(with_plan("simulate", quiet)).out,
            command_.run(with_plan("simulate", faulty)).out);
}

TEST_F(GoodputCommand, AStragglerSlowsSimulatedIterations) {
  write_faults(R"({"stragglers": [{"nodes": [0], "factor": 2}]})");
  const Json plain = command_.json(with_plan("simulate"));
  const Json slow = command_.json(with_plan("simulate", {"--faults", "faults.json"}));
  const double ratio = slow["mean_ms"].get<double>() / plain["mean_ms"].get<double>();
  EXPECT_GT(ratio, 1.3);
  EXPECT_LE(ratio, 2.0 + 1e-9);
}

}  // namespace
}  // namespace hydraulis
