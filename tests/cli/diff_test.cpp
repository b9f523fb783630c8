#include <set>

#include "planner/program/timeline.h"
#include "tests/cli/train_job.h"

namespace hydraulis {
namespace {

/// One stage whose forward takes `seconds`.
void write_timeline(const std::filesystem::path& path, const std::string& origin, double seconds,
                    Op op = Op::forward) {
  Timeline timeline;
  timeline.origin = origin;
  timeline.model_name = "tiny";
  timeline.tracks = {{0, 0, "(1,1,1)", {0}}};
  timeline.events.push_back({0, 0, 0, op, StreamKind::compute, 0, 0, seconds});
  write_timeline_hdf5(timeline, path);
}

TEST(DiffCommand, LinesUpTimelines) {
  const Command command;
  write_timeline(command.folder() / "p.h5", "simulated", 0.9);
  write_timeline(command.folder() / "m.h5", "measured", 1);
  const Json json = command.json({"diff", "p.h5", "m.h5"});
  EXPECT_NEAR(json.at("mean_abs_error").get<double>(), 0.1, 1e-9);
  EXPECT_NEAR(json.at("p95_abs_error").get<double>(), 0.1, 1e-9);
  EXPECT_NEAR(json.at("by_kind").at("forward").at("measured_ms").get<double>(), 1000, 1e-6);
  const Outcome text = command.run({"diff", "p.h5", "m.h5"});
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("Top causes"), std::string::npos) << text.out;
  const Outcome csv = command.run({"diff", "p.h5", "m.h5", "--csv"});
  EXPECT_EQ(csv.out.rfind("iteration,predicted_ms,measured_ms,error\n0,", 0), 0u) << csv.out;
}

// Every instruction is recorded, sends that leave last and the optimizer's step too: otherwise no
// prediction could be laid beside a real run.
TEST(DiffCommand, ATrainedTimelineHasEveryInstruction) {
  TrainingFolder job;
  job.plan(2, "(1,1,2)");
  job.run_file("run.json", {{"steps", 4}, {"timeline_steps", 4}});
  job.trained(2, {"run.json"});
  const std::filesystem::path path = job.folder() / "out" / "timeline.h5";
  std::set<std::tuple<int, int, int>> places;
  std::map<std::pair<int, int>, int> last;
  for (const TimelineEvent& event : read_timeline_hdf5(path).events) {
    places.emplace(event.iteration, event.stage, event.instruction);
    int& highest = last[{event.iteration, event.stage}];
    highest = std::max(highest, event.instruction);
  }
  ASSERT_EQ(last.size(), 8u);
  std::size_t expected = 0;
  for (const auto& [stage, highest] : last) expected += static_cast<std::size_t>(highest) + 1;
  EXPECT_EQ(places.size(), expected);
  const Json json = job.json({"diff", "out/timeline.h5", "out/timeline.h5"});
  EXPECT_EQ(json.at("iterations").size(), 4u);
  EXPECT_EQ(json.at("mean_abs_error"), 0.0);
  EXPECT_EQ(json.at("by_kind").at("send_gradient").at("count"),
            json.at("by_kind").at("receive_gradient").at("count"));
}

// The programs of the steps lie beside the timeline; simulated, they line up with it to the last
// instruction, on strategies that change.
TEST(DiffCommand, ATrainedRunIsReplayedAndLaidBeside) {
  TrainingFolder job;
  job.plan(2, "2x(1,1,1); (1,1,2); (1,2,1)");
  job.run_file("run.json", {{"steps", 5}, {"timeline_steps", 4}});
  job.trained(2, {"run.json"});
  const Json replayed =
      job.json({"replay", "out/programs", "--plan", "plan-2.json", "--timeline", "predicted.h5"});
  ASSERT_EQ(replayed.at("iterations").size(), 4u);
  const Json json = job.json({"diff", "predicted.h5", "out/timeline.h5", "--skip", "1"});
  EXPECT_EQ(json.at("iterations").size(), 3u);
  EXPECT_EQ(json.at("iterations").at(0).at("iteration"), 2);
  for (const char* kind : {"gather_parameters", "forward", "backward", "reduce_gradients",
                           "gradient_norm", "optimizer_step"}) {
    EXPECT_GT(json.at("by_kind").at(kind).at("measured_ms").get<double>(), 0) << kind;
  }
  for (const Json& note : json.at("notes")) {
    EXPECT_EQ(note.get<std::string>().find("left out, of iteration"), std::string::npos) << note;
  }
  // The planner's tokens are the program's.
  EXPECT_EQ(replayed.at("iterations").at(0).at("tokens").get<std::int64_t>(),
            std::stoll(job.rows("out/log.csv", 7).at(0).at(5)));
}

TEST(DiffCommand, ProgramsThatCannotBeReplayedAreRefused) {
  TrainingFolder job;
  job.plan(2, "2x(1,1,1)");
  job.plan(1, "(1,1,1)");
  job.run_file("run.json", {{"steps", 1}, {"timeline_steps", 1}});
  job.trained(2, {"run.json"});
  expect_one_error(job.run({"replay", "out/programs", "--plan", "plan-1.json"}), 2,
                   "out/programs/step-00000001.json: field 'devices' is 2");
  expect_one_error(job.run({"replay", "out/checkpoints", "--plan", "plan-2.json"}), 2,
                   "no program (.json)");
  expect_one_error(job.run({"replay", "none", "--plan", "plan-2.json"}), 2, "none");
  expect_one_error(
      job.run({"replay", "out/programs", "--plan", "plan-2.json", "--timeline", "x.txt"}), 2,
      "--timeline");
}

TEST(DiffCommand, RefusesOtherProgramsAndOtherFiles) {
  const Command command;
  write_timeline(command.folder() / "p.h5", "simulated", 0.9);
  write_timeline(command.folder() / "m.h5", "measured", 1, Op::recompute);
  expect_refused(command.run({"diff", "p.h5", "m.h5"}), 2,
                 "iteration 0, stage 0, instruction 0 is forward of micro-batch 0");
  expect_refused(command.run({"diff", "p.h5", "none.h5"}), 2, "none.h5");
  command.folder().write("text.h5", "not HDF5");
  expect_refused(command.run({"diff", "text.h5", "p.h5"}), 2, "text.h5");
  expect_refused(command.run({"diff", "p.h5", "p.h5", "-o", "p.h5"}), 2, "-o");
}

}  // namespace
}  // namespace hydraulis
