// `tune`.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/cli/command.h"

namespace hydraulis {
namespace {

using Arguments = std::vector<std::string>;

class TuneCommand : public ::testing::Test {
 protected:
  void SetUp() override { write_lengths(command_.folder()); }

  /// 13B on 16 A800, a search of a second or so.
  static Arguments tune(const Arguments& more = {}) {
    Arguments arguments = {"tune",
                           "--model",
                           "llama-13b",
                           "--cluster",
                           "a800-16",
                           "--trace",
                           "lengths.txt",
                           "--tokens-per-batch",
                           "60000",
                           "--context",
                           "16384",
                           "--over-context",
                           "truncate",
                           "--search-iterations",
                           "6",
                           "--iterations",
                           "4",
                           "--generations",
                           "1",
                           "--most-strategies",
                           "3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  /// The same with another value of an option that is there already.
  static Arguments tune_with(const std::string& option, const std::string& value) {
    Arguments arguments = tune();
    *(std::find(arguments.begin(), arguments.end(), option) + 1) = value;
    return arguments;
  }

  Command command_;
};

TEST_F(TuneCommand, ThePlanGivesTheReportedNumberInSimulateAndLoadsInAssign) {
  const Json tuned = command_.json(tune({"-o", "tuned.json", "--threads", "2"}));
  const Json simulated =
      command_.json({"simulate", "--plan", "tuned.json", "--trace", "lengths.txt", "--over-context",
                     "truncate", "--iterations", "4", "--seed", "1"});
  const double reported = tuned.at("winner").at("tokens_per_second").get<double>();
  EXPECT_NEAR(simulated.at("tokens_per_second").get<double>(), reported, 1e-9 * reported);
  EXPECT_NEAR(simulated.at("mean_ms").get<double>(), tuned.at("winner").at("mean_ms").get<double>(),
              1e-9 * reported);
  const Json searched =
      command_.json({"simulate", "--plan", "tuned.json", "--trace", "lengths.txt", "--over-context",
                     "truncate", "--iterations", "6", "--seed", "0"});
  const double search = tuned.at("winner").at("search_tokens_per_second").get<double>();
  EXPECT_NEAR(searched.at("tokens_per_second").get<double>(), search, 1e-9 * search);
  const Json assigned = command_.json(
      {"assign", "--plan", "tuned.json", "--lengths", "lengths.txt", "--over-context", "truncate"});
  EXPECT_GT(assigned.at("makespan_ms").get<double>(), 0);
}

TEST_F(TuneCommand, AScheduleThatGainsIsWrittenIntoThePlanAndFollowed) {
  const Json tuned =
      command_.json(tune({"-o", "tuned.json", "--schedules", "gpipe,zb,interleaved:4"}));
  const std::string schedule = tuned.at("winner").at("schedule").get<std::string>();
  double best = 1e-3;
  std::string expected = "1f1b";
  for (const Json& tried : tuned.at("tried")) {
    if (!tried.at("may_win").get<bool>() || tried.at("iterations").get<int>() < 6) continue;
    if (tried.at("against_winner").get<double>() <= best) continue;
    best = tried.at("against_winner").get<double>();
    expected = tried.at("schedule").get<std::string>();
  }
  EXPECT_EQ(schedule, expected);
  EXPECT_EQ(tuned.at("schedule").at("name"), expected);
  EXPECT_TRUE(std::ranges::any_of(tuned.at("tried"), [](const Json& tried) {
    return tried.at("schedule") == "interleaved:4" && tried.at("may_win").get<bool>();
  }));
  const Json simulated =
      command_.json({"simulate", "--plan", "tuned.json", "--trace", "lengths.txt", "--over-context",
                     "truncate", "--iterations", "4", "--seed", "1"});
  const double reported = tuned.at("winner").at("tokens_per_second").get<double>();
  EXPECT_NEAR(simulated.at("tokens_per_second").get<double>(), reported, 1e-9 * reported);
  EXPECT_EQ(command_.run(tune({"--schedules", "upside-down"})).code, 2);
}

TEST_F(TuneCommand, JsonHasTheDocumentedKeys) {
  const Json json = command_.json(tune());
  for (const char* key : {"strategies", "optimizer_layout", "max_tokens", "tokens_per_batch",
                          "search_tokens_per_second", "tokens_per_second", "mean_ms", "p95_ms",
                          "mfu", "bubble_share", "memory_headroom_gb"}) {
    EXPECT_TRUE(json.at("winner").contains(key)) << key;
  }
  ASSERT_FALSE(json.at("frontier").empty());
  for (const char* key : {"strategies", "max_tokens", "search_tokens_per_second",
                          "tokens_per_second", "memory_headroom_gb", "winner", "set"}) {
    EXPECT_TRUE(json.at("frontier")[0].contains(key)) << key;
  }
  for (const char* key : {"plan", "mean_ms", "tokens_per_second", "gain", "gain_low", "gain_high",
                          "faster_iterations"}) {
    EXPECT_TRUE(json.at("against")[0].contains(key)) << key;
  }
  // The parts of an iteration's time are all of it.
  for (const Json& plan : json.at("time")) {
    double sum = 0;
    for (const char* key :
         {"compute_ms", "communication_ms", "bubble_ms", "waiting_ms", "unused_ms"}) {
      sum += plan.at(key).get<double>();
    }
    EXPECT_NEAR(sum, plan.at("mean_ms").get<double>(), 1e-6 * sum);
  }
  for (const char* key : {"budgets", "tried", "rounds", "search", "notes"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
}

TEST_F(TuneCommand, ReproducibleOutputIsTheSameBytesOnAnyNumberOfThreads) {
  const Outcome one =
      command_.run(tune({"--reproducible", "--json", "-o", "a.json", "--threads", "1"}));
  const Outcome two =
      command_.run(tune({"--reproducible", "--json", "-o", "b.json", "--threads", "2"}));
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, two.out);
  EXPECT_EQ(read_text_file(command_.folder() / "a.json"),
            read_text_file(command_.folder() / "b.json"));
}

// A plan compared with is no candidate: the result without it is the same.
TEST_F(TuneCommand, PlansComparedWithDoNotChangeTheWinner) {
  const Outcome plan = command_.run({"plan", "--model", "llama-13b", "--cluster", "a800-16",
                                     "--context", "16384", "--tokens-per-batch", "60000",
                                     "--strategies", "2x(1,8,1)", "-o", "rival.json"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  const Json alone = command_.json(tune());
  const Json with = command_.json(tune({"--against", "rival.json"}));
  EXPECT_EQ(alone.at("winner"), with.at("winner"));
  ASSERT_EQ(with.at("against").size(), 2u);
  EXPECT_EQ(with.at("against")[1].at("plan"), "rival.json");
  const double ratio = with.at("winner").at("tokens_per_second").get<double>() /
                       with.at("against")[1].at("tokens_per_second").get<double>();
  EXPECT_NEAR(with.at("against")[1].at("gain").get<double>(), ratio - 1, 1e-9);
}

TEST_F(TuneCommand, SeveralTokenBudgetsAreComparedByThroughput) {
  Arguments arguments = tune_with("--tokens-per-batch", "30000,60000");
  arguments.insert(arguments.end(), {"-o", "tuned.json"});
  const Json json = command_.json(arguments);
  ASSERT_EQ(json.at("budgets").size(), 2u);
  double best = 0;
  std::uint64_t tokens = 0;
  for (const Json& budget : json.at("budgets")) {
    if (budget.at("search_tokens_per_second").get<double>() <= best) continue;
    best = budget.at("search_tokens_per_second").get<double>();
    tokens = budget.at("tokens_per_batch").get<std::uint64_t>();
  }
  EXPECT_EQ(json.at("winner").at("tokens_per_batch").get<std::uint64_t>(), tokens);
  const Json plan = Json::parse(read_text_file(command_.folder() / "tuned.json"));
  EXPECT_EQ(plan.at("tokens_per_batch").get<std::uint64_t>(), tokens);
}

TEST_F(TuneCommand, AContextThatDoesNotFitSaysWhatWould) {
  expect_refused(command_.run(tune_with("--context", "900000")), 3, "fits");
}

TEST_F(TuneCommand, BadOptionsAreRefused) {
  expect_refused(command_.run(tune_with("--search-iterations", "0")), 2, "'0'");
  expect_refused(command_.run(tune_with("--iterations", "1")), 2, "held-out");
  expect_refused(command_.run(tune({"--seed", "5", "--held-out-seed", "5"})), 2, "--held-out-seed");
  expect_refused(command_.run(tune_with("--most-strategies", "0")), 2, "--most-strategies");
  expect_refused(command_.run(tune({"--against", "missing.json"})), 2, "missing.json");
  expect_refused(command_.run(tune({"-o", "lengths.txt"})), 2, "-o");
  expect_refused(command_.run(tune({"--serach-iterations", "3"})), 2, "--search-iterations");
  expect_refused(command_.run(tune_with("--tokens-per-batch", "60000,none")), 2,
                 "--tokens-per-batch");
}

TEST_F(TuneCommand, APlanForAnotherClusterIsRefused) {
  ASSERT_EQ(command_.run(hand_plan("large.json")).code, 0);
  expect_refused(command_.run(tune({"--against", "large.json"})), 2, "64 devices");
}

}  // namespace
}  // namespace hydraulis
