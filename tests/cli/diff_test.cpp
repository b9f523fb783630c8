#include "planner/program/timeline.h"
#include "tests/cli/command.h"

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
