#include "sim/run_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "planner/program/program_json.h"
#include "tests/base/temporary_folder.h"
#include "tests/sim/small_model.h"

namespace hydraulis {
namespace {

using ::hydraulis::testing::pipeline_of;
using ::hydraulis::testing::small_model;
using ::testing::HasSubstr;

BatchPlan plan_of(std::uint32_t length) {
  BatchPlan plan;
  plan.pipelines.push_back(pipeline_of(1, 4, {{length, 100}, {50}}));
  plan.pipelines.push_back(pipeline_of(2, 1, {{length}}));
  return plan;
}

TEST(RunPrograms, AreSimulatedAsThePlansTheyCameFrom) {
  const TemporaryFolder folder;
  const CostModel model = small_model();
  std::vector<double> expected;
  for (const int step : {12, 3}) {
    const BatchPlan plan = plan_of(static_cast<std::uint32_t>(100 * step));
    write_program(lower(plan, model), folder.path() / ("step-" + std::to_string(step) + ".json"));
    expected.push_back(simulate_iteration(plan, model).result.time_seconds);
  }
  const auto programs = read_programs(folder.path());
  ASSERT_EQ(programs.size(), 2u);
  EXPECT_EQ(programs[0].step, 3);
  EXPECT_EQ(programs[1].step, 12);
  const ProgramRun run = simulate_programs(programs, model);
  ASSERT_EQ(run.result.iterations.size(), 2u);
  EXPECT_EQ(run.result.iterations[0].time_seconds, expected[1]);
  EXPECT_EQ(run.result.iterations[1].time_seconds, expected[0]);
  ASSERT_EQ(run.strategies.size(), 1u);
  EXPECT_EQ(to_string(run.strategies[0]), "(1,1,4)+(1,2,1)");
  // One after the other in the timeline.
  double end = 0;
  for (const TimelineEvent& event : run.timeline.events) {
    end = std::max(end, event.end_seconds);
    if (event.iteration == 12) {
      EXPECT_GE(event.start_seconds, expected[1]);
    }
  }
  EXPECT_DOUBLE_EQ(end, expected[0] + expected[1]);
}

TEST(RunPrograms, OfAnotherModelOrBrokenAreRefusedByName) {
  const TemporaryFolder folder;
  CostModel model = small_model();
  const auto path = folder.path() / "one.json";
  Program program = lower(plan_of(100), model);
  write_program(program, path);
  EXPECT_EQ(read_programs(path)[0].step, 0);
  const auto message = [&] {
    try {
      simulate_programs(read_programs(path), model);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(), "");
  program.stages[0].instructions.pop_back();
  program.stages[0].instructions.pop_back();
  write_program(program, path);
  EXPECT_THAT(message(), HasSubstr("one.json: work: stage 0"));
  model.model.layers = 8;
  EXPECT_THAT(message(), HasSubstr("one.json: field 'layers' is 4, expected the 8 of model small"));
}

TEST(RunPrograms, AFolderWithoutProgramsAndAStepTwiceAreRefused) {
  const TemporaryFolder folder;
  EXPECT_THROW(read_programs(folder.path()), InputError);
  EXPECT_THROW(read_programs(folder.path() / "none"), InputError);
  const Program program = lower(plan_of(100), small_model());
  write_program(program, folder.path() / "step-1.json");
  write_program(program, folder.path() / "step-01.json");
  EXPECT_THROW(read_programs(folder.path()), InputError);
}

}  // namespace
}  // namespace hydraulis
