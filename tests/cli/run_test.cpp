// `simulate` and `compare`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/results.h"
#include "tests/cli/command.h"

namespace hydraulis {
namespace {

using Arguments = std::vector<std::string>;

/// A folder with lengths.txt and a plan made by hand.
class RunCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    write_lengths(command_.folder());
    const Outcome plan = command_.run(hand_plan());
    ASSERT_EQ(plan.code, 0) << plan.err;
  }

  static Arguments simulate(const Arguments& more = {}) {
    Arguments arguments = {"simulate",           "--plan", "plan.json",    "--trace", "lengths.txt",
                           "--tokens-per-batch", "100000", "--iterations", "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static Arguments compare(const Arguments& more = {}) {
    Arguments arguments = simulate(more);
    arguments[0] = "compare";
    arguments.insert(arguments.end(), {"--policies", "static-pack,hydraulis"});
    return arguments;
  }

  Command command_;
};

TEST_F(RunCommand, SimulateHasTheStableKeys) {
  const Json json = command_.json(simulate());
  ASSERT_EQ(json.at("iterations").size(), 4u);
  double sum = 0;
  for (const auto& iteration : json.at("iterations")) {
    sum += iteration.at("time_ms").get<double>();
    EXPECT_GT(iteration.at("tokens").get<std::int64_t>(), 0);
    EXPECT_LE(iteration.at("tokens").get<std::int64_t>(), 100000);
    EXPECT_GE(iteration.at("bubble_share").get<double>(), 0);
    EXPECT_LT(iteration.at("bubble_share").get<double>(), 1);
    EXPECT_TRUE(iteration.contains("strategy"));
  }
  EXPECT_NEAR(json.at("mean_ms").get<double>(), sum / 4, 1e-9 * sum);
  EXPECT_GE(json.at("p95_ms").get<double>(), json.at("mean_ms").get<double>());
  EXPECT_GT(json.at("tokens_per_second").get<double>(), 0);
  EXPECT_GT(json.at("mfu").get<double>(), 0);
  EXPECT_LT(json.at("mfu").get<double>(), 1);
  EXPECT_GT(json.at("events").get<std::int64_t>(), 0);
  EXPECT_TRUE(json.contains("wall_seconds"));
}

TEST_F(RunCommand, CompareHasTheStableKeys) {
  const Json json = command_.json(compare());
  ASSERT_EQ(json.at("policies").size(), 2u);
  const Json& first = json.at("policies")[0];
  const Json& second = json.at("policies")[1];
  EXPECT_EQ(first.at("name"), "static-pack");
  EXPECT_EQ(second.at("name"), "hydraulis");
  EXPECT_EQ(first.at("speedup").get<double>(), 1.0);
  EXPECT_NEAR(second.at("speedup").get<double>(),
              first.at("mean_ms").get<double>() / second.at("mean_ms").get<double>(), 1e-12);
  for (const char* key : {"p95_ms", "tokens_per_second", "mfu", "bubble_share",
                          "days_per_trillion_tokens", "device_hours_per_trillion_tokens"}) {
    EXPECT_TRUE(second.contains(key)) << key;
  }
}

TEST_F(RunCommand, ReproducibleOutputIsTheSameOnAnyNumberOfThreads) {
  for (const auto make : {&RunCommand::simulate, &RunCommand::compare}) {
    for (const char* form : {"--json", "--csv", "--seed=7"}) {
      const Outcome one = command_.run((*make)({"--reproducible", form, "--threads", "1"}));
      const Outcome four = command_.run((*make)({"--reproducible", form, "--threads", "4"}));
      ASSERT_EQ(one.code, 0) << one.err;
      EXPECT_EQ(one.out, four.out);
      EXPECT_EQ(one.out.find("wall"), std::string::npos);
    }
  }
}

TEST_F(RunCommand, SeedsChangeTheBatches) {
  const Outcome one = command_.run(simulate({"--reproducible", "--csv", "--seed", "1"}));
  const Outcome two = command_.run(simulate({"--reproducible", "--csv", "--seed", "2"}));
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_NE(one.out, two.out);
}

// What the planner promises is what the simulator finds when nothing but computation takes time.
TEST_F(RunCommand, SimulationWithoutCommunicationIsTheAssignmentsMakespan) {
  const Json assigned =
      command_.json({"assign", "--plan", "plan.json", "--lengths", "lengths.txt"});
  const Json run =
      command_.json({"simulate", "--plan", "plan.json", "--trace", "lengths.txt", "--iterations",
                     "1", "--sequences-per-batch", "412", "--no-communication"});
  const double makespan = assigned.at("makespan_ms").get<double>();
  EXPECT_NEAR(run.at("iterations")[0].at("time_ms").get<double>(), makespan, 0.01 * makespan);
}

TEST_F(RunCommand, CommunicationCostsTime) {
  const Json with = command_.json(simulate());
  const Json without = command_.json(simulate({"--no-communication"}));
  EXPECT_GT(with.at("mean_ms").get<double>(), without.at("mean_ms").get<double>());
}

TEST_F(RunCommand, CsvHasARowAnIterationAndARowAPolicy) {
  const Outcome iterations = command_.run(simulate({"--csv"}));
  ASSERT_EQ(iterations.code, 0) << iterations.err;
  EXPECT_EQ(std::count(iterations.out.begin(), iterations.out.end(), '\n'), 5);
  EXPECT_EQ(iterations.out.rfind("iteration,time_ms,", 0), 0u) << iterations.out;
  const Outcome policies = command_.run(compare({"--csv"}));
  ASSERT_EQ(policies.code, 0) << policies.err;
  EXPECT_EQ(std::count(policies.out.begin(), policies.out.end(), '\n'), 3);
  EXPECT_EQ(policies.out.rfind("name,mean_ms,p95_ms,", 0), 0u) << policies.out;
}

TEST_F(RunCommand, TheTimelineIsValidJsonWithEventsAndTrackNames) {
  const Outcome outcome = command_.run(simulate({"--timeline", "timeline.json"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json timeline = read_json_file(command_.folder() / "timeline.json");
  const Json& events = timeline.is_array() ? timeline : timeline.at("traceEvents");
  std::size_t complete = 0;
  std::size_t names = 0;
  for (const auto& event : events) {
    const std::string phase = event.at("ph");
    if (phase == "M") ++names;
    if (phase == "X") {
      ++complete;
      EXPECT_GE(event.at("dur").get<double>(), 0);
      EXPECT_GE(event.at("ts").get<double>(), 0);
    }
  }
  EXPECT_GT(complete, 0u);
  EXPECT_GT(names, 0u);
}

// Batches and plans of a run are not held: some kilobytes an iteration, which 8,000 more would
// show.
TEST_F(RunCommand, ComparisonsGoOnWithoutAPolicyThatDoesNotFit) {
  // 56 devices are no multiple of the 16 that alone hold the context in one layout.
  command_.folder().write("seven.json", R"({"nodes": 7, "devices_per_node": 8,
    "device": {"name": "a800", "memory_gib": 80, "peak_bf16_teraflops": 312,
               "memory_bandwidth_gigabytes_per_second": 2039},
    "intra_node": {"bandwidth_gigabytes_per_second": 200, "latency_microseconds": 3.4},
    "inter_node": {"bandwidth_gigabits_per_second": 200, "latency_microseconds": 14}})");
  Arguments arguments = hand_plan("seven_plan.json");
  arguments[4] = "seven.json";
  arguments[10] = "3x(1,16,1)+(1,8,1)";
  arguments[12] = "7,8,1";
  arguments.insert(arguments.end(), {"--profile", "a800-llama-32b"});
  const Outcome made = command_.run(arguments);
  ASSERT_EQ(made.code, 0) << made.err;
  const auto compare_of = [&](const std::string& policies, const Arguments& more = {}) {
    Arguments compared = {"compare",      "--plan", "seven_plan.json", "--trace", "lengths.txt",
                          "--iterations", "2",      "--policies",      policies};
    compared.insert(compared.end(), more.begin(), more.end());
    return compared;
  };
  const Json json = command_.json(
      compare_of("static-pack,hydraulis,hydraulis-static", {"--results", "results.h5"}));
  const Json& policies = json.at("policies");
  ASSERT_EQ(policies.size(), 3u);
  EXPECT_THAT(policies[0].at("infeasible"), ::testing::HasSubstr("lower the context to"));
  EXPECT_TRUE(policies[0].at("mean_ms").is_null());
  EXPECT_GT(policies[1].at("mean_ms").get<double>(), 0);
  EXPECT_EQ(policies[1].at("speedup").get<double>(), 1.0);
  EXPECT_TRUE(policies[2].contains("infeasible"));
  EXPECT_EQ(json.at("speedup_against"), "hydraulis");
  const Results results = read_results(command_.folder() / "results.h5");
  ASSERT_EQ(results.runs.size(), 3u);
  EXPECT_EQ(results.runs[0].outcome, RunOutcome::infeasible);
  EXPECT_EQ(results.runs[0].policy, "static-pack");
  EXPECT_THAT(results.runs[0].message, ::testing::HasSubstr("lower the context to"));
  EXPECT_EQ(results.runs[1].outcome, RunOutcome::done);
  expect_refused(command_.run(compare_of("static-pack")), 3, "infeasible: memory per micro-batch");
  expect_refused(command_.run(compare_of("static-pack,hydraulis-static")), 3,
                 "none of the 2 policies fits: static-pack: memory");
  expect_refused(command_.run(compare_of("static-pack,hydraulic")), 2, "'hydraulic' is not known");
}

TEST_F(RunCommand, SwitchesOfTheStrategyCostWhatIsSaid) {
  Arguments four = hand_plan("four.json");
  four[10] = "4x(1,16,1); (1,16,1)+6x(1,8,1); (1,16,1)+12x(1,4,1); 8x(1,4,2)";
  ASSERT_EQ(command_.run(four).code, 0);
  const auto run = [&](const std::string& seconds) {
    return command_.json({"compare", "--no-communication", "--plan", "four.json", "--trace",
                          "commoncrawl", "--over-context", "truncate", "--iterations", "12",
                          "--policies", "hydraulis,hydraulis-steady", "--switch-seconds", seconds});
  };
  const auto mean = [](const Json& json, std::size_t policy) {
    return json.at("policies")[policy].at("mean_ms").get<double>();
  };
  const Json free = run("0");
  EXPECT_DOUBLE_EQ(mean(free, 0), mean(free, 1));
  const Json dear = run("30");
  EXPECT_GT(mean(dear, 0), mean(free, 0));
  EXPECT_LT(mean(dear, 1), mean(dear, 0));
  EXPECT_THAT(dear.at("policies")[0].at("remark"),
              ::testing::HasSubstr("switches of the strategy, 30 s each"));
  expect_refused(command_.run(compare({"--switch-seconds", "-1"})), 2, "--switch-seconds");
}

TEST_F(RunCommand, DerivedSchemesAreAskedFor) {
  const Arguments plan = {"plan",      "--trace", "github-gpt2", "--over-context", "truncate",
                          "--context", "131072",  "-o",          "long.json"};
  expect_refused(command_.run(plan), 3, "--schemes cp fits here");
  Arguments with = plan;
  with.insert(with.end(), {"--schemes", "cp"});
  const Outcome made = command_.run(with);
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, ::testing::HasSubstr("some schemes derived"));
  const Json json =
      command_.json({"compare", "--plan", "long.json", "--trace", "github-gpt2", "--over-context",
                     "truncate", "--iterations", "2", "--policies", "static-pack,hydraulis"});
  EXPECT_GT(json.at("policies")[1].at("speedup").get<double>(), 1);
  with.back() = "tp";
  expect_refused(command_.run(with), 2, "--schemes: 'tp'");
  expect_refused(command_.run(compare({"--schemes", "cp"})), 2, "--schemes: the plan");
}

TEST_F(RunCommand, UnlikeNodesInOneCluster) {
  const std::string device = R"({"name": "a800", "memory_gib": 80, "peak_bf16_teraflops": 312,
               "memory_bandwidth_gigabytes_per_second": 2039})";
  command_.folder().write("mixed.json",
                          R"({"devices_per_node": 8, "groups": [{"nodes": 4, "device": )" + device +
                              R"(}, {"nodes": 4, "device": )" + device +
                              R"(, "relative_speed": 2}],
    "intra_node": {"bandwidth_gigabytes_per_second": 200, "latency_microseconds": 3.4},
    "inter_node": {"bandwidth_gigabits_per_second": 200, "latency_microseconds": 14}})");
  const Json json = command_.json({"compare", "--cluster", "mixed.json", "--trace", "web-gpt2",
                                   "--over-context", "truncate", "--iterations", "3", "--policies",
                                   "static-pack,flexsp,hydraulis-static,hydraulis"});
  const Json& policies = json.at("policies");
  EXPECT_THAT(policies[1].at("infeasible"), ::testing::HasSubstr("lays pipelines over like nodes"));
  EXPECT_GT(policies[2].at("speedup").get<double>(), 1);
  EXPECT_GT(policies[3].at("speedup").get<double>(), policies[2].at("speedup").get<double>());
}

TEST_F(RunCommand, MemoryDoesNotGrowWithTheBatchesOfARun) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer keeps what was freed";
#endif
  std::string lengths;
  for (int length = 64; length < 2000; length += 37) lengths += std::to_string(length) + "\n";
  command_.folder().write("short.txt", lengths);
  const auto peak = [&](const std::string& iterations) {
    const Outcome outcome = command_.run({"compare", "--plan", "plan.json", "--trace", "short.txt",
                                          "--policies", "static-pack", "--tokens-per-batch",
                                          "60000", "--threads", "1", "--iterations", iterations});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.peak_kilobytes;
  };
  EXPECT_LT(peak("8200"), peak("200") + 4000);
}

TEST_F(RunCommand, EverySchedule) {
  for (const char* schedule : {"gpipe", "interleaved:2", "zb-h1", "zb", "unequal"}) {
    const auto on = [&](const char* threads) {
      return command_.run(simulate({"--schedule", schedule, "--no-communication", "--json",
                                    "--reproducible", "--threads", threads}));
    };
    const Outcome one = on("1");
    ASSERT_EQ(one.code, 0) << one.err;
    EXPECT_EQ(one.out, on("2").out) << schedule;
    const Json json = Json::parse(one.out);
    double whole = 0;
    for (const auto& [name, share] : json.at("losses").items()) whole += share.get<double>();
    EXPECT_NEAR(whole, 1, 1e-9) << schedule;
    double path = 0;
    for (const Json& resource : json.at("critical_path").at("resources")) {
      path += resource.at("path_ms").get<double>();
    }
    EXPECT_NEAR(path, json.at("iterations").at(0).at("time_ms").get<double>(), 1e-6) << schedule;
    EXPECT_LE(json.at("p50_ms"), json.at("p99_ms"));
  }
  expect_refused(command_.run(simulate({"--schedule", "zbv"})), 2, "--schedule");
  const Json rates = command_.json(simulate({"--price-per-device-hour", "2"}));
  EXPECT_NEAR(rates.at("cost_per_billion_tokens").get<double>(),
              2 * rates.at("device_hours_per_billion_tokens").get<double>(), 1e-6);
  EXPECT_GT(rates.at("kilowatt_hours_per_billion_tokens"), 0);
  expect_refused(command_.run(simulate({"--memory-timeline", "m.csv"})), 2, "--memory-timeline");
  const Outcome counted = command_.run(simulate({"--count-out-of-memory", "--json"}));
  ASSERT_EQ(counted.code, 0) << counted.err;
  EXPECT_EQ(Json::parse(counted.out).at("out_of_memory_share"), 0);
}

TEST_F(RunCommand, TruncatedSequencesAreCounted) {
  Arguments arguments = simulate({"--context", "16384", "--over-context", "truncate"});
  const Outcome outcome = command_.run(arguments);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("sequences over the context of 16384"), std::string::npos)
      << outcome.out;
  expect_refused(command_.run(simulate({"--context", "16384"})), 2, "16384");
}

TEST_F(RunCommand, BadInputIsRefused) {
  const auto simulate_trace = [&](const std::string& trace) {
    return command_.run({"simulate", "--plan", "plan.json", "--trace", trace});
  };
  const TemporaryFolder& folder = command_.folder();
  expect_refused(simulate_trace("none.h5"), 2, "none.h5");
  folder.write("fake.h5", "not HDF5 at all");
  expect_refused(simulate_trace("fake.h5"), 2, "fake.h5: not an HDF5 file");
  folder.write("empty.txt", "");
  expect_refused(simulate_trace("empty.txt"), 2, "empty.txt");
  folder.write("zeros.txt", "0\n0\n");
  expect_refused(simulate_trace("zeros.txt"), 2, "zeros.txt");
  folder.write("huge.txt", "99999999999999999999\n");
  expect_refused(simulate_trace("huge.txt"), 2, "huge.txt");
  folder.write("bytes.txt", std::string("\0\x01\xff\xfe", 4));
  expect_refused(simulate_trace("bytes.txt"), 2, "bytes.txt");
  folder.write("long.txt", "40000\n");
  expect_refused(simulate_trace("long.txt"), 2, "40000");
  expect_refused(command_.run({"compare", "--plan", "plan.json", "--trace", "lengths.txt",
                               "--policies", "hydraulic"}),
                 2, "'hydraulic' is not known");
  expect_refused(command_.run(simulate({"--policy", "none"})), 2, "none");
  expect_refused(command_.run(simulate({"--timeline", "missing/t.json"})), 2, "missing");
  expect_refused(command_.run(simulate({"--timeline-iteration", "4", "--timeline", "t.json"})), 2,
                 "--timeline-iteration");
  expect_refused(command_.run(simulate({"-o", "missing/out.txt"})), 2, "missing");
  expect_refused(command_.run({"simulate", "--plan", "plan.json"}), 2, "--trace");
  folder.write("longer.txt", "100\n60000\n");
  expect_refused(command_.run({"simulate", "--plan", "plan.json", "--trace", "longer.txt",
                               "--context", "65536"}),
                 3, "60");
}

}  // namespace
}  // namespace hydraulis
