#include "planner/bounds.h"

#include <gtest/gtest.h>

#include <cmath>

#include "linear_program.h"
#include "small_instances.h"

namespace hydraulis {
namespace {

using test::SmallInstance;

/// The optimum for single-stage pipelines as a mixed-integer program: x[k][j][i] puts sequence i
/// into micro-batch j of pipeline k, y[k][j] says whether that micro-batch is used.
test::LinearProgram::Solution solve_exactly(const SmallInstance& instance) {
  test::LinearProgram program;
  const int n = static_cast<int>(instance.sequences.size());
  const int makespan = program.add_variable(1);
  std::vector<test::LinearProgram::Row> placed(static_cast<std::size_t>(n));
  for (const PipelineCost& pipeline : instance.pipelines) {
    test::LinearProgram::Row time{{makespan, -1.0}};
    int before = -1;
    for (int j = 0; j < n; ++j) {
      const int used = program.add_binary();
      time.emplace_back(used, pipeline.slowest.c);
      test::LinearProgram::Row tokens{{used, -static_cast<double>(pipeline.max_tokens)}};
      for (int i = 0; i < n; ++i) {
        const std::int64_t length = instance.sequences[static_cast<std::size_t>(i)].length;
        if (pipeline.padded(length) > pipeline.max_tokens) continue;
        const int here = program.add_binary();
        tokens.emplace_back(here, static_cast<double>(pipeline.padded(length)));
        time.emplace_back(here, pipeline.sequence_seconds(length));
        placed[static_cast<std::size_t>(i)].emplace_back(here, 1.0);
      }
      program.add_row(std::move(tokens), -test::LinearProgram::kFree, 0);
      if (before >= 0) {
        program.add_row({{before, 1.0}, {used, -1.0}}, 0, test::LinearProgram::kFree);
      }
      before = used;
    }
    program.add_row(std::move(time), -test::LinearProgram::kFree, 0);
  }
  for (auto& row : placed) program.add_row(std::move(row), 1, 1);
  return program.minimise();
}

void expect_bounds_hold(const SmallInstance& instance, double optimum) {
  const double quick =
      makespan_lower_bound(instance.pipelines, instance.sequences, BoundEffort::quick);
  const double whole =
      makespan_lower_bound(instance.pipelines, instance.sequences, BoundEffort::whole_numbers);
  EXPECT_GT(quick, 0) << instance.text();
  EXPECT_LE(quick, optimum * (1 + 1e-9)) << instance.text();
  EXPECT_LE(whole, optimum * (1 + 1e-9)) << instance.text();
  EXPECT_GE(whole, quick * (1 - 1e-12)) << instance.text();
}

TEST(Bounds, NeverAboveTheExhaustiveOptimumOnSingleStages) {
  Random random(11);
  for (int round = 0; round < 1500; ++round) {
    const SmallInstance instance = test::random_instance(random, 6, 1);
    expect_bounds_hold(instance, test::exhaustive_optimum(instance));
  }
}

TEST(Bounds, NeverAboveTheExhaustiveOptimumOnPipelinesOfStages) {
  Random random(12);
  for (int round = 0; round < 800; ++round) {
    const SmallInstance instance = test::random_instance(random, 5, 4);
    expect_bounds_hold(instance, test::exhaustive_optimum(instance));
  }
}

/// Bounds that look at where long sequences go, which they do only when told how much is enough.
void long_bounds_hold(std::uint64_t seed, int rounds, int most_sequences, int most_stages,
                      int least_raised) {
  Random random(seed);
  int raised = 0;
  for (int round = 0; round < rounds; ++round) {
    const SmallInstance instance = test::random_instance(random, most_sequences, most_stages);
    const double optimum = test::exhaustive_optimum(instance);
    const double without =
        makespan_lower_bound(instance.pipelines, instance.sequences, BoundEffort::whole_numbers);
    for (const double enough : {1.0 + 1e-6, 1.02, 1.2}) {
      const double bound = makespan_lower_bound(instance.pipelines, instance.sequences,
                                                BoundEffort::whole_numbers, enough * optimum);
      EXPECT_LE(bound, optimum * (1 + 2e-6)) << instance.text();
      raised += bound > 1.001 * without ? 1 : 0;
    }
  }
  EXPECT_GT(raised, least_raised);
}

TEST(Bounds, WithLongSequencesNeverAboveTheExhaustiveOptimum) {
  long_bounds_hold(14, 800, 5, 4, 400);
}

TEST(Bounds, WithLongSequencesOnManyStagesNeverAboveTheExhaustiveOptimum) {
  long_bounds_hold(15, 400, 4, 8, 200);
}

TEST(Bounds, NeverAboveTheMixedIntegerOptimum) {
  Random random(13);
  int solved = 0;
  for (int round = 0; round < 25; ++round) {
    const SmallInstance instance = test::random_instance(random, 6, 1);
    if (!std::all_of(instance.pipelines.begin(), instance.pipelines.end(),
                     [](const PipelineCost& p) { return p.scheme.pp == 1; })) {
      continue;
    }
    // One stage of its own cost: stages are all alike.
    const auto solution = solve_exactly(instance);
    ASSERT_TRUE(solution.optimal) << instance.text();
    ++solved;
    EXPECT_NEAR(solution.objective, test::exhaustive_optimum(instance), 1e-5 * solution.objective)
        << instance.text();
    expect_bounds_hold(instance, solution.objective * (1 + 1e-6));
  }
  EXPECT_GT(solved, 20);
}

TEST(Bounds, OnOneEmptyEnoughPipelineTheBoundIsTheTime) {
  const std::vector<PipelineCost> pipelines{test::make_pipeline(1, 1, 1, 1000, {1e-4, 0.01, 2.0})};
  const auto sequences = test::make_sequences({100, 200, 300});
  const double exact = 1e-4 * (1e4 + 4e4 + 9e4) + 0.01 * 600 + 2.0;
  EXPECT_NEAR(makespan_lower_bound(pipelines, sequences, BoundEffort::whole_numbers), exact,
              2e-5 * exact);
}

TEST(Bounds, WhatFitsIntoOneMicroBatchDoesNotLimitTwo) {
  // The long sequence fits the second pipeline only and decides the makespan, 3.1; the first needs
  // two micro-batches of one sequence each, 2.8.
  SmallInstance instance;
  instance.pipelines = {test::make_pipeline(1, 1, 1, 100, {0, 0.01, 0.5}),
                        test::make_pipeline(1, 2, 1, 1000, {0, 0.01, 0.5})};
  instance.sequences = test::make_sequences({260, 90, 90});
  EXPECT_NEAR(test::exhaustive_optimum(instance), 3.1, 1e-12);
  expect_bounds_hold(instance, 3.1);
}

TEST(Bounds, AFewLongSequencesDoNotHideTheOthersWork) {
  // Only the first pipeline holds the long ones, which take it a small part of the time that the
  // short ones need everywhere.
  std::vector<PipelineCost> pipelines(12,
                                      test::make_pipeline(1, 4, 1, 7808, {3.9e-9, 2.4e-4, 0.12}));
  pipelines.insert(pipelines.begin(), test::make_pipeline(1, 16, 1, 43520, {1.4e-9, 1e-4, 0.15}));
  std::vector<std::uint32_t> lengths{9400, 8600, 8300};
  lengths.resize(200, 900);
  const auto sequences = test::make_sequences(lengths);
  const double makespan = assign(sequences, test::prepare_by_hand(pipelines)).makespan_seconds;
  const double bound = makespan_lower_bound(pipelines, sequences, BoundEffort::quick);
  EXPECT_LE(bound, makespan);
  EXPECT_GE(bound, 0.97 * makespan);
}

TEST(Bounds, WithoutConstantsManySequencesStillEndQuickly) {
  const std::vector<PipelineCost> pipelines(3, test::make_pipeline(1, 1, 4, 4096, {0, 0.01, 0}));
  const std::vector<Sequence> sequences =
      test::make_sequences(std::vector<std::uint32_t>(20000, 100));
  const double work = 20000 * 1.0 / 3;
  const double bound = makespan_lower_bound(pipelines, sequences, BoundEffort::whole_numbers);
  EXPECT_LE(bound, work * 1.02);
  EXPECT_GE(bound, work * (1 - 1e-4));
}

TEST(Bounds, InfiniteWhenASequenceFitsNowhereAndZeroWithoutSequences) {
  const std::vector<PipelineCost> pipelines{test::make_pipeline(1, 1, 1, 100, {0, 1, 1})};
  EXPECT_TRUE(
      std::isinf(makespan_lower_bound(pipelines, test::make_sequences({101}), BoundEffort::quick)));
  EXPECT_EQ(makespan_lower_bound(pipelines, {}, BoundEffort::whole_numbers), 0);
}

TEST(Bounds, StopsAtEnough) {
  const std::vector<PipelineCost> pipelines(4, test::make_pipeline(1, 1, 1, 100, {0, 1, 1}));
  const auto sequences = test::make_sequences({60, 60, 60, 60, 60});
  const double full = makespan_lower_bound(pipelines, sequences, BoundEffort::whole_numbers);
  const double early = makespan_lower_bound(pipelines, sequences, BoundEffort::whole_numbers, 1.0);
  EXPECT_LE(early, full * (1 + 1e-9));
  EXPECT_GE(early, 1.0);
}

}  // namespace
}  // namespace hydraulis
