#include "costmodel/fit_curve.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr double kFlattest = 0.01;  ///< of the mean slope
constexpr double kGoodEnough =
    1e-4;  ///< mean squared relative error (1 %) that needs no more knots
constexpr std::size_t kMostCandidates = 24;

/// To which part of itself a knot must lower the squared error: more than noise would let it, by
/// the criterion of Schwarz (1978) for two more numbers, half as much again.
double wanted_gain(std::size_t points) {
  const auto n = static_cast<double>(points);
  return std::min(0.9, std::exp(-3 * std::log(n) / n));
}

/// How much of [0, x] lies in the piece from `from` to `to`.
double overlap(double x, double from, double to) { return std::clamp(x, from, to) - from; }

/// Distinct x at which a knot may stand.
std::vector<double> candidates(std::vector<double> xs) {
  std::sort(xs.begin(), xs.end());
  xs.erase(std::unique(xs.begin(), xs.end()), xs.end());
  if (xs.size() < 4) return {};
  const double highest = xs.back() / 2;
  const double least = xs.front();
  // Two distinct points at least on either side.
  std::vector<double> allowed(xs.begin() + 1, xs.end() - 2);
  std::erase_if(allowed, [&](double x) { return x > highest || x <= least; });
  if (allowed.size() <= kMostCandidates) return allowed;
  std::vector<double> spread;
  const double step = std::pow(allowed.back() / allowed.front(), 1.0 / (kMostCandidates - 1));
  double next = allowed.front();
  for (const double x : allowed) {
    if (x < next) continue;
    spread.push_back(x);
    while (next <= x) next *= step;
  }
  return spread;
}

struct Trial {
  MonotoneCurve curve;
  double error = std::numeric_limits<double>::infinity();  ///< mean of squared relative errors
};

Trial try_knots(std::span<const FitPoint> points, std::vector<double> knots, double flattest) {
  std::sort(knots.begin(), knots.end());
  const std::size_t pieces = knots.size() + 1;
  std::vector<std::vector<double>> columns(pieces + 1, std::vector<double>(points.size()));
  std::vector<double> target(points.size());
  const auto from = [&](std::size_t piece) { return piece == 0 ? 0 : knots[piece - 1]; };
  const auto to = [&](std::size_t piece) {
    return piece == knots.size() ? std::numeric_limits<double>::infinity() : knots[piece];
  };
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto [x, y, weight] = points[i];
    columns[0][i] = weight / y;
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      columns[piece + 1][i] = weight * overlap(x, from(piece), to(piece)) / y;
    }
    // Slopes are found as what they have beyond the flattest one allowed.
    target[i] = weight * (1 - flattest * x / y);
  }
  const std::vector<double> found = non_negative_least_squares(columns, target);
  Trial trial;
  trial.curve.start = found[0];
  trial.curve.knots = std::move(knots);
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    trial.curve.slopes.push_back(found[piece + 1] + flattest);
  }
  double sum = 0;
  double weights = 0;
  for (const auto& [x, y, weight] : points) {
    const double off = weight * (trial.curve.at(x) / y - 1);
    sum += off * off;
    weights += weight * weight;
  }
  trial.error = sum / weights;
  return trial;
}

}  // namespace

double MonotoneCurve::at(double x) const {
  double value = start;
  double from = 0;
  for (std::size_t i = 0; i < slopes.size(); ++i) {
    const double to = i < knots.size() ? knots[i] : std::numeric_limits<double>::infinity();
    if (x <= from) break;
    value += slopes[i] * overlap(x, from, to);
    from = to;
  }
  return value;
}

CurveFit fit_monotone(std::span<const FitPoint> points, int most_knots, const char* what) {
  if (points.empty()) throw InputError("{}: no points to fit", what);
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  double mean_slope = 0;
  std::vector<double> xs;
  for (const auto& [x, y, weight] : points) {
    if (!std::isfinite(x) || x < 0 || !std::isfinite(y) || y <= 0 || !(weight > 0)) {
      throw InputError(
          "{}: the point ({}, {}) cannot be fitted, expected finite numbers, the "
          "first 0 or more, the second above 0",
          what, x, y);
    }
    low = std::min(low, x);
    high = std::max(high, x);
    xs.push_back(x);
  }
  for (const auto& [x, y, weight] : points) {
    if (x == high) mean_slope = std::max(mean_slope, x > 0 ? y / x : y);
  }
  const double flattest = kFlattest * mean_slope;
  std::vector<double> left = candidates(xs);
  Trial best = try_knots(points, {}, flattest);
  while (static_cast<int>(best.curve.knots.size()) < most_knots && best.error > kGoodEnough) {
    Trial next;
    std::size_t which = left.size();
    for (std::size_t i = 0; i < left.size(); ++i) {
      std::vector<double> knots = best.curve.knots;
      knots.push_back(left[i]);
      Trial trial = try_knots(points, std::move(knots), flattest);
      if (trial.error >= next.error) continue;
      next = std::move(trial);
      which = i;
    }
    if (which == left.size() || next.error > wanted_gain(points.size()) * best.error) break;
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(which));
    best = std::move(next);
  }
  CurveFit fit{std::move(best.curve), {}};
  fit.curve.measured_from = low;
  fit.curve.measured_to = high;
  std::vector<double> predicted;
  std::vector<double> measured;
  for (const auto& [x, y, weight] : points) {
    predicted.push_back(fit.curve.at(x));
    measured.push_back(y);
  }
  fit.quality = fit_quality(predicted, measured);
  return fit;
}

double fit_weight(double median, double low, double high) {
  constexpr double kHalf = 0.05;
  return kHalf * median / (kHalf * median + std::max(0.0, high - low));
}

std::vector<double> non_negative_least_squares(const std::vector<std::vector<double>>& columns,
                                               const std::vector<double>& target) {
  const auto n = static_cast<Eigen::Index>(columns.size());
  const auto m = static_cast<Eigen::Index>(target.size());
  Eigen::MatrixXd a(m, n);
  Eigen::VectorXd scale(n);
  for (Eigen::Index j = 0; j < n; ++j) {
    a.col(j) = Eigen::Map<const Eigen::VectorXd>(columns[static_cast<std::size_t>(j)].data(), m);
    const double norm = a.col(j).norm();
    scale[j] = norm > 0 ? 1 / norm : 0;
    a.col(j) *= scale[j];
  }
  const Eigen::Map<const Eigen::VectorXd> b(target.data(), m);
  Eigen::VectorXd x = Eigen::VectorXd::Zero(n);
  std::vector<bool> free(static_cast<std::size_t>(n), false);
  const double tolerance = 1e-12 * std::max(1.0, b.norm());

  // Least squares over the free columns alone.
  const auto solve = [&] {
    std::vector<Eigen::Index> indices;
    for (Eigen::Index j = 0; j < n; ++j) {
      if (free[static_cast<std::size_t>(j)]) indices.push_back(j);
    }
    Eigen::VectorXd full = Eigen::VectorXd::Zero(n);
    if (indices.empty()) return full;
    const Eigen::VectorXd part = a(Eigen::all, indices).colPivHouseholderQr().solve(b);
    for (std::size_t k = 0; k < indices.size(); ++k) {
      full[indices[k]] = part[static_cast<Eigen::Index>(k)];
    }
    return full;
  };

  for (Eigen::Index round = 0; round < 3 * n + 10; ++round) {
    const Eigen::VectorXd gradient = a.transpose() * (b - a * x);
    Eigen::Index enter = -1;
    for (Eigen::Index j = 0; j < n; ++j) {
      if (free[static_cast<std::size_t>(j)] || gradient[j] <= tolerance) continue;
      if (enter < 0 || gradient[j] > gradient[enter]) enter = j;
    }
    if (enter < 0) break;
    free[static_cast<std::size_t>(enter)] = true;
    Eigen::VectorXd wanted = solve();
    while (wanted.minCoeff() < 0) {
      // As far towards the wanted point as signs allow; what reaches 0 is fixed there.
      double step = 1;
      Eigen::Index blocking = 0;
      wanted.minCoeff(&blocking);
      for (Eigen::Index j = 0; j < n; ++j) {
        if (wanted[j] >= 0 || x[j] / (x[j] - wanted[j]) >= step) continue;
        step = x[j] / (x[j] - wanted[j]);
        blocking = j;
      }
      x += step * (wanted - x);
      x[blocking] = 0;
      free[static_cast<std::size_t>(blocking)] = false;
      wanted = solve();
    }
    x = wanted;
  }
  std::vector<double> result(columns.size());
  for (Eigen::Index j = 0; j < n; ++j) result[static_cast<std::size_t>(j)] = x[j] * scale[j];
  return result;
}

FitQuality fit_quality(std::span<const double> predicted, std::span<const double> measured) {
  FitQuality quality;
  quality.points = static_cast<int>(measured.size());
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const double error = std::abs(predicted[i] / measured[i] - 1);
    quality.mean_error += error / static_cast<double>(measured.size());
    quality.max_error = std::max(quality.max_error, error);
  }
  return quality;
}

}  // namespace hydraulis
