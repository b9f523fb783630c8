#include "planner/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "base/random.h"

namespace hydraulis {
namespace {

/// Micro-batch seconds (forward w, backward 2w) of the unequal cases.
std::vector<double> unequal(int count) {
  std::uint32_t x = 12345;
  std::vector<double> seconds;
  for (int j = 0; j < count; ++j) {
    x = 1664525u * x + 1013904223u;
    seconds.push_back(3 * (0.25 + 1.5 * static_cast<double>(x / 256) / (1 << 24)));
  }
  return seconds;
}

/// 1F1B as a graph of operations, each relaxed until nothing changes: independent of the sweep.
double by_relaxation(const std::vector<double>& seconds, int stages, int count) {
  struct Operation {
    bool forward;
    int micro_batch;
  };
  std::vector<std::vector<double>> forward(stages, std::vector<double>(count, 0));
  std::vector<std::vector<double>> backward = forward;
  double end = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (int stage = 0; stage < stages; ++stage) {
      std::vector<Operation> stream;
      int next = 0;
      while (next < std::min(stages - 1 - stage, count)) stream.push_back({true, next++});
      for (int j = 0; j < count; ++j) {
        if (next < count) stream.push_back({true, next++});
        stream.push_back({false, j});
      }
      double free = 0;
      for (const Operation& operation : stream) {
        const int j = operation.micro_batch;
        double start = free;
        if (operation.forward && stage > 0) start = std::max(start, forward[stage - 1][j]);
        if (!operation.forward && stage < stages - 1) {
          start = std::max(start, backward[stage + 1][j]);
        }
        const double whole = seconds[static_cast<std::size_t>(stage) * count + j];
        free = start + whole * (operation.forward ? kForwardShare : 1 - kForwardShare);
        double& known = operation.forward ? forward[stage][j] : backward[stage][j];
        if (free > known) {
          known = free;
          changed = true;
        }
      }
      end = std::max(end, free);
    }
  }
  return end;
}

TEST(Schedule, EqualMicroBatches) {
  EXPECT_NEAR(OneForwardOneBackward(4).makespan(std::vector<double>(16, 3.0)), 57, 1e-9);
  EXPECT_NEAR(OneForwardOneBackward(8).makespan(std::vector<double>(64, 3.0)), 213, 1e-9);
}

TEST(Schedule, UnequalMicroBatches) {
  EXPECT_NEAR(OneForwardOneBackward(8).makespan(unequal(64)), 322.156896, 5e-7);
  EXPECT_NEAR(OneForwardOneBackward(16).makespan(unequal(128)), 691.617401, 5e-7);
}

TEST(Schedule, LongestFirst) {
  for (const auto& [stages, count, expected] : {std::tuple{8, 64, 226.780}, {16, 128, 461.179}}) {
    std::vector<double> seconds = unequal(count);
    std::sort(seconds.rbegin(), seconds.rend());
    EXPECT_NEAR(OneForwardOneBackward(stages).makespan(seconds), expected, 5e-4);
  }
}

TEST(Schedule, ChosenOrderBeatsLongestFirst) {
  for (const auto& [stages, count, sorted] : {std::tuple{8, 64, 226.780}, {16, 128, 461.179}}) {
    const std::vector<double> seconds = unequal(count);
    double best = 0;
    const std::vector<int> order = order_micro_batches(seconds, stages, 400, &best);
    EXPECT_LT(best, sorted);
    // Never below what any order needs: all the work, and one micro-batch passing every stage.
    EXPECT_GT(best, std::accumulate(seconds.begin(), seconds.end(), 0.0));
    std::vector<double> ordered;
    for (const int j : order) ordered.push_back(seconds[static_cast<std::size_t>(j)]);
    EXPECT_NEAR(OneForwardOneBackward(stages).makespan(ordered), best, 1e-9);
    std::vector<int> permutation = order;
    std::sort(permutation.begin(), permutation.end());
    for (int j = 0; j < count; ++j) EXPECT_EQ(permutation[static_cast<std::size_t>(j)], j);
  }
}

TEST(Schedule, OneStageIsThePlainSum) {
  EXPECT_NEAR(OneForwardOneBackward(1).makespan(std::vector{1.0, 2.5, 4.0}), 7.5, 1e-12);
  EXPECT_NEAR(OneForwardOneBackward(1).makespan_by_stage(std::vector{1.0, 2.5, 4.0}, 3), 7.5,
              1e-12);
}

TEST(Schedule, FewerMicroBatchesThanStages) {
  EXPECT_NEAR(OneForwardOneBackward(8).makespan(std::vector{3.0}), 24, 1e-12);
  EXPECT_NEAR(OneForwardOneBackward(4).makespan(std::vector<double>(2, 3.0)), 15, 1e-12);
  EXPECT_NEAR(OneForwardOneBackward(4).makespan(std::vector<double>(3, 3.0)), 18, 1e-12);
}

TEST(Schedule, NothingTakesNoTime) {
  EXPECT_EQ(OneForwardOneBackward(4).makespan({}), 0);
  EXPECT_EQ(OneForwardOneBackward(1).makespan({}), 0);
}

TEST(Schedule, StagesThatDifferMatchRelaxation) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    const int stages = 1 + static_cast<int>(random.below(6));
    const int count = 1 + static_cast<int>(random.below(12));
    std::vector<double> seconds(static_cast<std::size_t>(stages) * count);
    for (double& value : seconds) value = 0.05 + 4 * random.uniform() * random.uniform();
    const double expected = by_relaxation(seconds, stages, count);
    EXPECT_NEAR(OneForwardOneBackward(stages).makespan_by_stage(seconds, count), expected,
                1e-9 * expected)
        << stages << " stages, " << count << " micro-batches";
  }
}

TEST(Schedule, BuffersOfALongerScheduleDoNotLeakIntoAShorterOne) {
  OneForwardOneBackward schedule(4);
  const double alone = schedule.makespan(std::vector{1.0, 2.0});
  schedule.makespan(unequal(64));
  EXPECT_EQ(schedule.makespan(std::vector{1.0, 2.0}), alone);
}

TEST(Schedule, OrderStaysWithinItsWork) {
  // The first order is longest first; with a single evaluation it is all there is.
  const std::vector<double> seconds{1, 3, 2};
  double best = 0;
  EXPECT_EQ(order_micro_batches(seconds, 4, 1, &best), (std::vector{1, 2, 0}));
  EXPECT_NEAR(best, OneForwardOneBackward(4).makespan(std::vector{3.0, 2.0, 1.0}), 1e-12);
}

}  // namespace
}  // namespace hydraulis
