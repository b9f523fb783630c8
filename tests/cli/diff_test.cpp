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

// Every instruction up to the reduction is recorded, sends that leave last too: otherwise no
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
