#include "planner/bubble.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "base/random.h"
#include "linear_program.h"
#include "planner/schedule.h"

namespace hydraulis {
namespace {

/// Least 1F1B makespan of `count` micro-batches whose sizes sum to 1, as a linear program over
/// sizes and the end of every operation; the sizes at `places` are at least `lengths`.
test::LinearProgram::Solution solve_makespan(int stages, int count,
                                             const std::vector<int>& places = {},
                                             const std::vector<double>& lengths = {}) {
  constexpr double kFree = test::LinearProgram::kFree;
  test::LinearProgram program;
  const int makespan = program.add_variable(1);
  test::LinearProgram::Row total;
  std::vector<int> size;
  for (int j = 0; j < count; ++j) {
    double least = 0;
    for (std::size_t k = 0; k < places.size(); ++k) {
      if (places[k] == j) least = lengths[k];
    }
    size.push_back(program.add_variable(0, least));
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
    const auto solution = solve_makespan(stages, count);
    ASSERT_TRUE(solution.optimal) << stages << ' ' << count;
    const double factor = least_bubble_factor(stages, count);
    EXPECT_LE(factor, solution.objective + 1e-9) << stages << ' ' << count;
    EXPECT_GE(factor, solution.objective - 2e-6) << stages << ' ' << count;
  }
}

TEST(Bubble, BeyondTheTableStaysBelowTheLinearProgram) {
  for (const auto& [stages, count] : {std::pair{17, 3}, {3, 36}, {20, 6}}) {
    const auto solution = solve_makespan(stages, count);
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

TEST(LongMicroBatch, StaysBelowAndNearTheLinearProgram) {
  for (const auto& [stages, count] : {std::pair{2, 6}, {3, 5}, {3, 9}, {4, 7}, {6, 6}, {8, 8}}) {
    for (const double share : {1.2 / count, 2.0 / count, 3.0 / count}) {
      const std::vector<double> longest{share};
      double exact = 1e9;
      for (int place = 0; place < count; ++place) {
        const auto solution = solve_makespan(stages, count, {place}, longest);
        ASSERT_TRUE(solution.optimal);
        exact = std::min(exact, solution.objective);
      }
      const double bound = least_makespan(stages, count, 1, longest);
      EXPECT_LE(bound, exact + 1e-9) << stages << ' ' << count << ' ' << share;
      EXPECT_GE(bound, 0.98 * exact) << stages << ' ' << count << ' ' << share;
    }
  }
}

TEST(LongMicroBatch, TwoStayBelowAndNearTheLinearProgram) {
  for (const auto& [stages, count] : {std::pair{2, 5}, {3, 6}, {4, 6}}) {
    const std::vector<double> longest{2.0 / count, 1.7 / count};
    double exact = 1e9;
    for (int x = 0; x < count; ++x) {
      for (int y = 0; y < count; ++y) {
        if (x == y) continue;
        const auto solution = solve_makespan(stages, count, {x, y}, longest);
        ASSERT_TRUE(solution.optimal);
        exact = std::min(exact, solution.objective);
      }
    }
    const double bound = least_makespan(stages, count, 1, longest);
    EXPECT_LE(bound, exact + 1e-9) << stages << ' ' << count;
    EXPECT_GE(bound, 0.97 * exact) << stages << ' ' << count;
  }
}

TEST(LongMicroBatch, NoScheduleBeatsTheLimit) {
  Random random(5);
  for (int round = 0; round < 4000; ++round) {
    const int stages = 2 + static_cast<int>(random.below(7));
    const int count = 1 + static_cast<int>(random.below(45));
    std::vector<double> seconds;
    const double growth = 0.5 + random.uniform();  // ramps come closest to the limit
    double size = 1;
    for (int j = 0; j < count; ++j) {
      seconds.push_back(size * (0.8 + 0.4 * random.uniform()));
      size = std::clamp(size * (j < count / 2 ? growth : 1 / growth), 1e-3, 4.0);
    }
    const double makespan = OneForwardOneBackward(stages).makespan(seconds);
    const double work = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    // Pieces: the longest micro-batches, one of them perhaps of two pieces.
    std::vector<double> pieces = seconds;
    if (random.below(2) == 0) {
      const double cut = (0.3 + 0.4 * random.uniform()) * pieces.front();
      pieces.push_back(cut);
      pieces.front() -= cut;
    }
    std::sort(pieces.rbegin(), pieces.rend());
    for (std::size_t known = 0; known <= std::min<std::size_t>(3, pieces.size()); ++known) {
      const std::span<const double> longest(pieces.data(), known);
      EXPECT_GE(most_work(stages, count, makespan, longest), work * (1 - 1e-9))
          << stages << ' ' << count << ' ' << known;
      EXPECT_LE(least_makespan(stages, count, work, longest), makespan * (1 + 1e-9))
          << stages << ' ' << count << ' ' << known;
    }
  }
}

TEST(LongMicroBatch, LimitAndItsReverseAgree) {
  for (const int stages : {2, 3, 4, 6, 8}) {
    for (const int count : {1, 2, 7, 16, 17, 32, 33, 100}) {
      const std::vector<double> longest{0.5, 0.4, 0.1};
      const double makespan = least_makespan(stages, count, 3, longest);
      EXPECT_NEAR(most_work(stages, count, makespan * (1 + 1e-12), longest), 3, 1e-6)
          << stages << ' ' << count;
    }
  }
  EXPECT_LT(most_work(4, 8, 1.0, std::vector{0.26}), 0);  // four times 0.26 is too long
}

}  // namespace
}  // namespace hydraulis
