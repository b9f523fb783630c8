#include <fstream>

#include "tests/cli/train_job.h"
#include "tests/costmodel/synthetic_machine.h"

namespace hydraulis {
namespace {

// A run that is predicted, measured, refitted and predicted again: the second prediction's errors
// are those of the spread alone.
TEST(DiffCommand, RefitsTheProfileThatThePredictionWasMadeWith) {
  TrainingFolder job;
  job.plan(2, "2x(1,1,1)");
  job.run_file("run.json", {{"steps", 4}, {"timeline_steps", 4}});
  job.trained(2, {"run.json"});
  const ModelSpec model = load_model((job.folder() / "config.json").string());
  OperatorProfile profile = testing::measure(testing::SyntheticMachine(), model);
  profile.machine.device = "core";
  write_operator_profile(profile, job.folder() / "machine.h5");
  const auto predict = [&](const std::string& with) {
    job.json({"replay", "out/programs", "--plan", "plan-2.json", "--profile", with, "--timeline",
              "predicted.h5"});
  };
  predict("machine.h5");
  const Json refit = job.json({"diff", "predicted.h5", "out/timeline.h5", "--skip", "1",
                               "--profile", "machine.h5", "--refit", "corrected.h5"});
  EXPECT_GE(refit.at("refit").size(), 4u);
  predict("corrected.h5");
  const Json again = job.json({"diff", "predicted.h5", "out/timeline.h5", "--skip", "1"});
  for (const char* kind : {"forward", "backward", "optimizer_step"}) {
    const Json& row = again.at("by_kind").at(kind);
    EXPECT_NEAR(row.at("predicted_ms").get<double>(), row.at("measured_ms").get<double>(),
                1e-6 * row.at("measured_ms").get<double>())
        << kind;
  }
  expect_one_error(job.run({"diff", "predicted.h5", "out/timeline.h5", "--refit", "x.h5"}), 2,
                   "--profile");
  expect_one_error(job.run({"diff", "predicted.h5", "out/timeline.h5", "--profile", "machine.h5",
                            "--refit", "machine.h5"}),
                   2, "machine.h5");
  expect_one_error(job.run({"diff", "predicted.h5", "out/timeline.h5", "--profile", "config.json",
                            "--refit", "x.h5"}),
                   2, "config.json");
}

}  // namespace
}  // namespace hydraulis
