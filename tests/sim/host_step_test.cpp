// Optimizer states in host memory: the step of a simulated iteration.
#include <gtest/gtest.h>

#include <cmath>

#include "costmodel/host_states.h"
#include "planner/program/lower.h"
#include "sim/costing.h"
#include "sim/training_job.h"
#include "tests/sim/small_model.h"

namespace hydraulis {
namespace {

using testing::pipeline_of;
using testing::small_model;

TEST(HostStep, CopiesAndUpdatesTakeItsTime) {
  CostModel model = small_model();
  model.states = OptimizerStates::host;
  model.cluster.host = {{1e6, 1e-3}, 0, 8e6};
  BatchPlan plan;
  for (int i = 0; i < 4; ++i) plan.pipelines.push_back(pipeline_of(1, 2, {{100}}));
  const Program program = lower(plan, model);
  const Durations durations = instruction_durations(program, model);
  const double owned = std::ceil(static_cast<double>(parameter_count(model.model)) / 8);
  // One bucket: 4 bytes down and 2 up at 1 MB/s, 34 bytes at a quarter of 8 MB/s.
  const double expected = 2e-3 + owned * (6 / 1e6 + 34 / 2e6);
  int steps = 0;
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const auto& instructions = program.stages[s].instructions;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      if (instructions[i].op != Op::optimizer_step) continue;
      EXPECT_NEAR(durations.seconds[s][i], expected, 1e-9);
      ++steps;
    }
  }
  EXPECT_EQ(steps, 8);
  bool said = false;
  for (const std::string& line : costing_assumptions(model, {})) {
    said |= line.starts_with("optimizer step: on the hosts, copies (host link 0.001 GB/s");
  }
  EXPECT_TRUE(said);
}

TEST(HostStep, CheckpointsHoldWhatIsOnTheHost) {
  CostModel model = small_model();
  const double on_device = checkpoint_bytes({}, model);
  EXPECT_EQ(on_device, 12 * static_cast<double>(parameter_count(model.model)));
  model.states = OptimizerStates::host;
  model.numbers.optimizer = kHostStatesDeviceBytes;
  EXPECT_EQ(checkpoint_bytes({}, model), on_device);
}

}  // namespace
}  // namespace hydraulis
