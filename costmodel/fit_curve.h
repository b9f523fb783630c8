#pragma once

#include <span>
#include <vector>

namespace hydraulis {

/// How well a fit gives back the points it was made from: |predicted/measured − 1|.
struct FitQuality {
  int points = 0;
  double mean_error = 0;
  double max_error = 0;
  /// A fit whose mean error is above this is reported as bad.
  static constexpr double kBadMean = 0.10;
  bool bad() const { return !(mean_error <= kBadMean); }
};

struct FitPoint {
  double x = 0;
  double y = 0;
  double weight = 1;  ///< of its relative error
};

/// A function of x ≥ 0 in straight pieces that never falls: `start` at 0, then slopes[j] between
/// knots j − 1 and j. The last slope goes on for ever, the first reaches down to 0.
struct MonotoneCurve {
  double start = 0;
  std::vector<double> knots;   ///< ascending, may be empty
  std::vector<double> slopes;  ///< one more than knots, all positive in a fit
  double measured_from = 0;    ///< range of the points it was fitted to
  double measured_to = 0;

  double at(double x) const;
  bool measured(double x) const { return x >= measured_from && x <= measured_to; }
};

struct CurveFit {
  MonotoneCurve curve;
  FitQuality quality;
};

/// Weight of a point in a fit, from the quantiles of its repeats: what spreads by a twentieth of
/// the median weighs half as much as what does not spread at all.
double fit_weight(double median, double low, double high);

/// Non-negative least squares of the weighted relative error over curves of straight pieces; knots
/// are added where they lower the error by more than noise would let them, `most_knots` at most,
/// never in the upper half of the range, so that what lies beyond it follows a slope with two sizes
/// behind it. No piece is flatter than a hundredth of the mean slope: beyond the range the curve
/// grows. Points must be finite with x ≥ 0, y > 0 and weight > 0, at least one; several may share
/// an x. Throws InputError naming `what` otherwise.
CurveFit fit_monotone(std::span<const FitPoint> points, int most_knots, const char* what);

/// Solves min |Σ xⱼ·columns[j] − target| for x ≥ 0 (Lawson and Hanson's active sets, 1974).
std::vector<double> non_negative_least_squares(const std::vector<std::vector<double>>& columns,
                                               const std::vector<double>& target);

/// Quality of predictions beside measurements; same lengths, measured > 0.
FitQuality fit_quality(std::span<const double> predicted, std::span<const double> measured);

}  // namespace hydraulis
