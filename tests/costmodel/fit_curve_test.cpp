#include "costmodel/fit_curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/costmodel/expect_error.h"

namespace hydraulis {
namespace {

TEST(NonNegativeLeastSquares, FindsCoefficientsThatAreThere) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> entry(0, 1);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<std::vector<double>> columns(5, std::vector<double>(40));
    std::vector<double> truth;
    std::vector<double> target(40, 0.0);
    for (auto& column : columns) {
      truth.push_back(entry(random) < 0.4 ? 0 : entry(random));
      for (std::size_t i = 0; i < column.size(); ++i) {
        column[i] = entry(random);
        target[i] += truth.back() * column[i];
      }
    }
    const std::vector<double> found = non_negative_least_squares(columns, target);
    for (std::size_t j = 0; j < truth.size(); ++j) EXPECT_NEAR(found[j], truth[j], 1e-9);
  }
}

/// At the solution no coefficient is negative and no step that keeps it so lowers the error
/// (Karush, Kuhn and Tucker), whatever the target.
TEST(NonNegativeLeastSquares, IsOptimalForAnyTarget) {
  std::mt19937_64 random(2);
  std::normal_distribution<double> entry;
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::vector<double>> columns(4, std::vector<double>(12));
    std::vector<double> target(12);
    for (auto& column : columns) {
      for (double& value : column) value = entry(random);
    }
    for (double& value : target) value = entry(random);
    const std::vector<double> x = non_negative_least_squares(columns, target);
    std::vector<double> residual = target;
    for (std::size_t j = 0; j < x.size(); ++j) {
      EXPECT_GE(x[j], 0);
      for (std::size_t i = 0; i < residual.size(); ++i) residual[i] -= x[j] * columns[j][i];
    }
    for (std::size_t j = 0; j < x.size(); ++j) {
      double gradient = 0;
      for (std::size_t i = 0; i < residual.size(); ++i) gradient += columns[j][i] * residual[i];
      EXPECT_LE(gradient, 1e-9);
      if (x[j] > 0) {
        EXPECT_NEAR(gradient, 0, 1e-9);
      }
    }
  }
}

TEST(MonotoneFit, FindsALineAndItsBreak) {
  std::vector<FitPoint> line;
  std::vector<FitPoint> broken;
  for (double x = 1; x <= 4096; x *= 2) {
    line.push_back({x, 3 + 0.5 * x});
    broken.push_back({x, 3 + 0.5 * std::min(x, 64.0) + 0.1 * std::max(0.0, x - 64)});
  }
  const CurveFit straight = fit_monotone(line, 6, "line");
  EXPECT_TRUE(straight.curve.knots.empty());
  EXPECT_NEAR(straight.curve.start, 3, 1e-9);
  EXPECT_NEAR(straight.curve.at(1e6), 3 + 0.5e6, 1e-3);
  EXPECT_LT(straight.quality.max_error, 1e-9);
  const CurveFit bent = fit_monotone(broken, 6, "broken line");
  EXPECT_LT(bent.quality.mean_error, 0.01);
  EXPECT_NEAR(bent.curve.at(1e6) / (3 + 32 + 0.1 * (1e6 - 64)), 1, 0.02);
  EXPECT_NEAR(bent.curve.at(32) / 19, 1, 0.02);
}

/// Noise of a fifth: predictions stay positive, never fall, and grow beyond the range.
TEST(MonotoneFit, NeverFallsUnderNoise) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> noise(0, 0.2);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int trial = 0; trial < 60; ++trial) {
    const double latency = std::pow(10, 4 * uniform(random)) * (uniform(random) < 0.3 ? 0 : 1);
    const double slope = std::pow(10, 2 * uniform(random) - 1);
    std::vector<FitPoint> points;
    for (double x = 1; x < 1e5; x *= 1.5) {
      points.push_back({x, (latency + slope * x) * std::exp(noise(random))});
    }
    const CurveFit fit = fit_monotone(points, 6, "noise");
    EXPECT_GE(fit.curve.start, 0);
    for (const double piece : fit.curve.slopes) {
      EXPECT_GT(piece, 0);
      EXPECT_TRUE(std::isfinite(1 / piece));
    }
    double last = fit.curve.at(0);
    for (double x = 0.5; x < 1e8; x *= 1.1) {
      const double value = fit.curve.at(x);
      EXPECT_TRUE(std::isfinite(value));
      EXPECT_GT(value, last);
      last = value;
    }
    EXPECT_LT(fit.quality.mean_error, 0.25);
    // The truth under the noise.
    EXPECT_NEAR(fit.curve.at(3e4) / (latency + slope * 3e4), 1, 0.25);
  }
}

TEST(MonotoneFit, OnePointAndEqualPointsGrowInProportion) {
  const std::vector<FitPoint> one = {{100, 5}};
  const CurveFit fit = fit_monotone(one, 6, "point");
  EXPECT_NEAR(fit.curve.at(100), 5, 1e-9);
  EXPECT_GT(fit.curve.at(200), 5);
  EXPECT_EQ(fit.curve.measured_to, 100);
  const std::vector<FitPoint> falling = {{1, 8}, {10, 6}, {100, 4}, {1000, 2}, {10000, 1}};
  const CurveFit flat = fit_monotone(falling, 6, "falling");
  EXPECT_GT(flat.curve.at(1e6), flat.curve.at(1e4));
  EXPECT_TRUE(flat.quality.bad()) << "a curve that may not fall cannot fit these";
}

TEST(MonotoneFit, RefusesWhatCannotBeMeasured) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const FitPoint bad : {FitPoint{1, nan}, {1, inf}, {1, 0}, {1, -1}, {-1, 1}, {nan, 1}}) {
    const std::vector<FitPoint> points = {{1, 1}, bad};
    expect_error<InputError>([&] { fit_monotone(points, 6, "sizes"); }, {"sizes"});
  }
  expect_error<InputError>([&] { fit_monotone({}, 6, "sizes"); }, {"no points"});
}

}  // namespace
}  // namespace hydraulis
