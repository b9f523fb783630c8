#include "planner/bubble.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "linear_program.h"
#include "planner/schedule.h"

namespace hydraulis {
namespace {

/// Least 1F1B makespan of `count` micro-batches whose sizes sum to 1, as a linear program over
/// sizes and the end of every operation.
test::LinearProgram::Solution least_makespan(int stages, int count) {
  constexpr double kFree = test::LinearProgram::kFree;
  test::LinearProgram program;
  const int makespan = program.add_variable(1);
  test::LinearProgram::Row total;
  std::vector<int> size;
  for (int j = 0; j < count; ++j) {
    size.push_back(program.add_variable(0));
    total.emplace_back(size.back(), 1.0);
  }
  program.add_row(std::move(total), 1, 1);
  std::vector<std::vector<int>> ends[2];  // [backward][stage][micro-batch]
  for (auto& kind : ends) {
    kind.resize(static_cast<std::size_t>(stages));
    for (auto& stage : kind) {
      for (int j = 0; j < count; ++j) stage.push_back(program.add_variable(0));
    }
  }
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<std::pair<int, int>> stream;  // (is backward, micro-batch)
    int next = 0;
    while (next < std::min(stages - 1 - stage, count)) stream.emplace_back(0, next++);
    for (int j = 0; j < count; ++j) {
      if (next < count) stream.emplace_back(0, next++);
      stream.emplace_back(1, j);
    }
    int previous = -1;
    for (const auto& [kind, j] : stream) {
      const int end = ends[kind][stage][j];
      const double share = kind == 0 ? kForwardShare : 1 - kForwardShare;
      const auto after = [&](int before) {
        test::LinearProgram::Row row{{end, 1.0}, {size[static_cast<std::size_t>(j)], -share}};
        if (before >= 0) row.emplace_back(before, -1.0);
        program.add_row(std::move(row), 0, kFree);
      };
      after(previous);
      if (kind == 0 && stage > 0) after(ends[0][stage - 1][j]);
      if (kind == 1 && stage < stages - 1) after(ends[1][stage + 1][j]);
      previous = end;
    }
    program.add_row({{makespan, 1.0}, {previous, -1.0}}, 0, kFree);
  }
  return program.minimise();
}

TEST(Bubble, EqualsTheLinearProgramsOptimum) {
  for (const auto& [stages, count] : {std::pair{2, 1},
                                      {2, 5},
                                      {2, 32},
                                      {3, 4},
                                      {4, 4},
                                      {4, 16},
                                      {5, 7},
                                      {8, 3},
                                      {8, 12},
                                      {16, 2},
                                      {16, 9}}) {
    const auto solution = least_makespan(stages, count);
    ASSERT_TRUE(solution.optimal) << stages << ' ' << count;
    const double factor = least_bubble_factor(stages, count);
    EXPECT_LE(factor, solution.objective + 1e-9) << stages << ' ' << count;
    EXPECT_GE(factor, solution.objective - 2e-6) << stages << ' ' << count;
  }
}

TEST(Bubble, BeyondTheTableStaysBelowTheLinearProgram) {
  for (const auto& [stages, count] : {std::pair{17, 3}, {3, 36}, {20, 6}}) {
    const auto solution = least_makespan(stages, count);
    ASSERT_TRUE(solution.optimal) << stages << ' ' << count;
    EXPECT_LE(least_bubble_factor(stages, count), solution.objective + 1e-9);
  }
}

TEST(Bubble, FallsWithMicroBatchesAndStaysBelowEqualOnes) {
  for (int stages = 1; stages <= 20; ++stages) {
    double before = 1e9;
    for (int count = 1; count <= 80; ++count) {
      const double factor = least_bubble_factor(stages, count);
      EXPECT_GE(factor, 1) << stages << ' ' << count;
      EXPECT_LE(factor, static_cast<double>(count + stages - 1) / count + 1e-12)
          << stages << ' ' << count;
      EXPECT_LE(factor, before) << stages << ' ' << count;
      before = factor;
    }
  }
}

TEST(Bubble, OneMicroBatchPassesEveryStageAndOneStageHasNoBubble) {
  for (const int stages : {2, 4, 16}) EXPECT_NEAR(least_bubble_factor(stages, 1), stages, 2e-6);
  EXPECT_EQ(least_bubble_factor(1, 1), 1);
  EXPECT_EQ(least_bubble_factor(1, 1000), 1);
}

}  // namespace
}  // namespace hydraulis
