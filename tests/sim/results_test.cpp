#include "sim/results.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <thread>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/hdf5.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {
namespace {

ResultRun done_run() {
  ResultRun run;
  run.settings = {{"policy", "hydraulis"}, {"cluster", {{"nodes", 4}}}, {"note", "a ⟨1,2,1⟩"}};
  run.axis_values = {4, "hydraulis"};
  run.policy = "hydraulis";
  run.remark = "two layouts";
  run.model = "llama-13b";
  run.profile = "somewhere";
  run.analytic = true;
  run.provenance = {{{"what", "link"}, {"source", "data sheet"}, {"detail", "ours"}}};
  run.devices = 32;
  run.summary.mean_seconds = 1.5;
  run.summary.p95_seconds = 2.25;
  run.summary.tokens_per_second = 1e6;
  run.summary.mfu = 0.375;
  run.summary.events = 77;
  for (int i = 0; i < 3; ++i) {
    IterationResult iteration;
    iteration.time_seconds = 1 + i;
    iteration.strategy = i % 2;
    iteration.tokens = 1000u + static_cast<unsigned>(i);
    run.iterations.push_back(iteration);
  }
  run.strategies = {"2x(1,8,1)", "(1,8,2)"};
  KeptIteration kept;
  kept.iteration = 1;
  kept.memory_limit_bytes = 8e10;
  StageResult stage;
  stage.pipeline = 1;
  stage.scheme = "(1,8,2)";
  stage.times.compute_seconds = 0.5;
  stage.times.peak_live_tokens = 4096;
  stage.memory.activations = 1e9;
  kept.stages = {stage, stage};
  kept.stages[1].index = 1;
  TimelineEvent event;
  event.iteration = 1;
  event.stage = 1;
  event.op = Op::reduce_gradients;
  event.stream = StreamKind::parameters;
  event.start_seconds = 0.25;
  event.end_seconds = 0.75;
  event.bytes = 123;
  kept.timeline.events = {event};
  run.kept = kept;
  return run;
}

Results two_runs() {
  Results results;
  results.name = "example";
  results.axes = {"cluster.nodes", "policy"};
  results.runs.push_back(done_run());
  ResultRun failed;
  failed.settings = Json::object();
  failed.axis_values = {8, "static-pack"};
  failed.outcome = RunOutcome::infeasible;
  failed.message = "out of memory";
  failed.policy = "static-pack";
  results.runs.push_back(failed);
  return results;
}

TEST(Results, AFileGivesBackWhatWasWritten) {
  const TemporaryFolder folder;
  write_results(two_runs(), folder / "r.h5");
  const Results read = read_results(folder / "r.h5");
  EXPECT_EQ(read.name, "example");
  EXPECT_EQ(read.axes, two_runs().axes);
  ASSERT_EQ(read.runs.size(), 2u);
  const ResultRun& run = read.runs[0];
  EXPECT_EQ(run.settings, two_runs().runs[0].settings);
  EXPECT_EQ(run.axis_values[0].get<double>(), 4);
  EXPECT_EQ(run.axis_values[1], "hydraulis");
  EXPECT_EQ(run.remark, "two layouts");
  EXPECT_TRUE(run.analytic);
  EXPECT_EQ(run.provenance, done_run().provenance);
  EXPECT_EQ(run.devices, 32);
  EXPECT_DOUBLE_EQ(run.summary.mean_seconds, 1.5);
  EXPECT_DOUBLE_EQ(run.summary.p95_seconds, 2.25);
  EXPECT_DOUBLE_EQ(run.summary.mfu, 0.375);
  EXPECT_EQ(run.summary.events, 77u);
  EXPECT_DOUBLE_EQ(run.device_hours_per_billion_tokens(), 32 * 1e9 / 1e6 / 3600);
  ASSERT_EQ(run.iterations.size(), 3u);
  EXPECT_DOUBLE_EQ(run.iterations[2].time_seconds, 3);
  EXPECT_EQ(run.iterations[1].strategy, 1);
  EXPECT_EQ(run.iterations[2].tokens, 1002u);
  EXPECT_EQ(run.strategies, (std::vector<std::string>{"2x(1,8,1)", "(1,8,2)"}));
  ASSERT_TRUE(run.kept.has_value());
  EXPECT_EQ(run.kept->iteration, 1);
  EXPECT_DOUBLE_EQ(run.kept->memory_limit_bytes, 8e10);
  ASSERT_EQ(run.kept->stages.size(), 2u);
  EXPECT_EQ(run.kept->stages[1].index, 1);
  EXPECT_EQ(run.kept->stages[0].times.peak_live_tokens, 4096u);
  EXPECT_DOUBLE_EQ(run.kept->stages[0].memory.activations, 1e9);
  ASSERT_EQ(run.kept->timeline.events.size(), 1u);
  const TimelineEvent& event = run.kept->timeline.events[0];
  EXPECT_EQ(event.op, Op::reduce_gradients);
  EXPECT_EQ(event.stream, StreamKind::parameters);
  EXPECT_DOUBLE_EQ(event.end_seconds, 0.75);
  EXPECT_EQ(event.bytes, 123);
  EXPECT_EQ(read.runs[1].outcome, RunOutcome::infeasible);
  EXPECT_EQ(read.runs[1].message, "out of memory");
  EXPECT_FALSE(read.runs[1].kept.has_value());
}

TEST(Results, TheSameResultsGiveTheSameBytes) {
  const TemporaryFolder folder;
  write_results(two_runs(), folder / "a.h5");
  // The library can write the time in seconds into every object.
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  write_results(two_runs(), folder / "b.h5");
  EXPECT_TRUE(read_text_file(folder / "a.h5") == read_text_file(folder / "b.h5"));
}

TEST(Results, FilesThatCannotBeAreRefusedByName) {
  const TemporaryFolder folder;
  write_results(two_runs(), folder / "r.h5");
  const std::string whole = read_text_file(folder / "r.h5");
  folder.write("cut.h5", whole.substr(0, whole.size() / 2));
  EXPECT_NE(message_of<InputError>([&] { read_results(folder / "cut.h5"); }).find("cut.h5"),
            std::string::npos);
  {
    Hdf5File file = Hdf5File::create(folder / "other.h5", "other.h5");
    file.set_attribute("/", "format", std::string("hydraulis timeline"));
    file.close();
  }
  EXPECT_NE(
      message_of<InputError>([&] { read_results(folder / "other.h5"); }).find("not a results file"),
      std::string::npos);
  Results unknown = two_runs();
  unknown.runs[0].iterations[0].strategy = 7;
  write_results(unknown, folder / "strategy.h5");
  EXPECT_NE(message_of<InputError>([&] { read_results(folder / "strategy.h5"); }).find("strategy"),
            std::string::npos);
  Results stage = two_runs();
  stage.runs[0].kept->timeline.events[0].stage = 2;
  write_results(stage, folder / "stage.h5");
  EXPECT_NE(message_of<InputError>([&] { read_results(folder / "stage.h5"); }).find("/events"),
            std::string::npos);
  Results endless = two_runs();
  endless.runs[0].summary.mean_seconds = std::numeric_limits<double>::infinity();
  write_results(endless, folder / "infinite.h5");
  EXPECT_NE(message_of<InputError>([&] { read_results(folder / "infinite.h5"); }).find("mean_ms"),
            std::string::npos);
}

}  // namespace
}  // namespace hydraulis
