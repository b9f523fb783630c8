#include "costmodel/profiler/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"

namespace hydraulis {
namespace {

// Exact values: with 9 fair coins P(at most 1 head) = 10/512 = 0.0195 and P(at most 2) = 0.0898, so
// the 2nd and 8th value bound the median; six are the fewest for which any pair does (2/64).
TEST(Sampling, MedianIntervalIsThatOfFairCoins) {
  std::vector<double> values(9);
  std::iota(values.begin(), values.end(), 1.0);
  EXPECT_EQ(median_interval(values), std::make_pair(2.0, 8.0));
  values.resize(6);
  EXPECT_EQ(median_interval(values), std::make_pair(1.0, 6.0));
  values.resize(5);
  EXPECT_TRUE(std::isinf(median_interval(values).second));
  // 100 values: the 40th and the 61st (tables of the sign test).
  values.resize(100);
  std::iota(values.begin(), values.end(), 1.0);
  EXPECT_EQ(median_interval(values), std::make_pair(40.0, 61.0));
  values.resize(2000);
  std::iota(values.begin(), values.end(), 1.0);
  const auto [low, high] = median_interval(values);
  EXPECT_NEAR(low, 1000 - 0.98 * std::sqrt(2000), 2);
  EXPECT_NEAR(high, 1001 + 0.98 * std::sqrt(2000), 2);
}

TEST(Sampling, IntervalHoldsTheMedianNineteenTimesInTwenty) {
  Random random(7);
  int held = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values(25);
    for (double& value : values) value = std::pow(random.uniform(), 3);  // median 1/8
    std::sort(values.begin(), values.end());
    const auto [low, high] = median_interval(values);
    held += low <= 0.125 && 0.125 <= high ? 1 : 0;
  }
  EXPECT_GE(held, 0.945 * kTrials);
}

TEST(Sampling, QuantilesSpreadAndOutliers) {
  std::vector<double> seconds;
  for (int i = 0; i <= 100; ++i) seconds.push_back(1 + 0.001 * i);
  seconds.push_back(50);
  const Sampled sampled = summarize(seconds, {});
  EXPECT_NEAR(sampled.time.median_seconds, 1.0505, 1e-9);
  EXPECT_NEAR(sampled.time.low_seconds, 1.0101, 1e-9);
  EXPECT_NEAR(sampled.time.high_seconds, 1.0909, 1e-9);
  EXPECT_EQ(sampled.outliers, 1);
  EXPECT_NEAR(sampled.spread, 0.0808 / 1.0505, 1e-9);
  EXPECT_TRUE(sampled.time.steady);
}

/// Work whose clock is simulated.
struct Work {
  std::function<double(int call)> seconds;
  int calls = 0;
  double operator()(int times) {
    double sum = 0;
    for (int i = 0; i < times; ++i) sum += seconds(calls++);
    return sum;
  }
};

TEST(Sampling, SlowFirstCallsAreWarmUp) {
  Work work{[](int call) { return call < 6 ? 0.5 / (call + 1) : 0.01; }};
  SamplingLimits limits;
  limits.most_warm_up_seconds = 10;
  const Sampled sampled = sample(std::ref(work), limits);
  EXPECT_DOUBLE_EQ(sampled.time.high_seconds, 0.01);
  EXPECT_TRUE(sampled.time.steady);
}

// A clock that drops under load (B08): the median is of both states and the spread shows it.
TEST(Sampling, ClocksThatDropShowInTheSpread) {
  Work work{[](int call) { return call % 6 < 3 ? 0.010 : 0.0126; }};
  SamplingLimits limits;
  limits.most_seconds = 100;
  const Sampled sampled = sample(std::ref(work), limits);
  EXPECT_GT(sampled.spread, 0.15);
  EXPECT_LE(sampled.time.repeats, limits.most_repeats + 4);
}

TEST(Sampling, EndsWhenNarrowAndNoLater) {
  Work even{[](int) { return 0.02; }};
  EXPECT_LE(sample(std::ref(even), {}).time.repeats, 8);
  Random random(3);
  Work wild{[&](int) { return 0.001 * (1 + 9 * random.uniform()); }};
  SamplingLimits limits;
  limits.most_repeats = 40;
  const Sampled sampled = sample(std::ref(wild), limits);
  EXPECT_EQ(sampled.time.repeats, 40);
  EXPECT_FALSE(sampled.time.steady);
}

TEST(Sampling, TimeIsALimit) {
  Random random(3);
  Work wild{[&](int) { return 0.1 * (1 + 9 * random.uniform()); }};
  SamplingLimits limits;
  limits.most_seconds = 3;
  const Sampled sampled = sample(std::ref(wild), limits);
  EXPECT_LE(sampled.time.repeats, 12);
  EXPECT_GE(sampled.time.repeats, 4);
}

TEST(Sampling, ShortWorkIsDoneSeveralTimesInARepeat) {
  Work work{[](int) { return 1e-6; }};
  SamplingLimits limits;
  limits.least_seconds_a_repeat = 1e-4;
  const Sampled sampled = sample(std::ref(work), limits);
  EXPECT_NEAR(sampled.time.median_seconds, 1e-6, 1e-12);
  EXPECT_GE(work.calls, 8 * 100);
}

// Another process is not done yet: this one goes on with it although its own times are narrow.
TEST(Sampling, GoesOnUntilAllAreDone) {
  Work work{[](int) { return 0.02; }};
  int asked = 0;
  Together together;
  together.greatest = [&](double mine) { return ++asked < 20 ? std::max(mine, 1.0) : mine; };
  SamplingLimits limits;
  limits.most_seconds = 50;
  limits.most_warm_up_seconds = 50;
  EXPECT_GT(sample(std::ref(work), limits, together).time.repeats, 12);
}

}  // namespace
}  // namespace hydraulis
