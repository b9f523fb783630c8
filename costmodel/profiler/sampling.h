#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "costmodel/operator_profile.h"

namespace hydraulis {

/// When a measurement is good enough, and when it ends even so.
struct SamplingLimits {
  int least_repeats = 7;
  int most_repeats = 101;
  double most_seconds = 1;  ///< measured time of all repeats, warm-up apart
  /// Half of the width of the 95 % confidence interval of the median, over the median.
  double relative_interval = 0.02;
  /// Shorter work is done several times in one repeat, so that reading the clock does not show.
  double least_seconds_a_repeat = 1e-4;
  /// Warm-up ends when the medians of two rounds of repeats agree to this share, or after so many
  /// repeats or so much time.
  double steady_share = 0.05;
  int most_warm_ups = 24;
  double most_warm_up_seconds = 0.5;
};

/// What repeats of one thing say. Outliers (farther than three times the interquartile range from
/// the quartiles) are counted and stay in: the median does not mind them, and they happen.
struct Sampled {
  Timing time;
  double spread = 0;  ///< (90 % − 10 % quantile) / median
  int outliers = 0;
};

/// 95 % confidence interval of the median of sorted values, from order statistics (distribution
/// free: David and Nagaraja, Order Statistics, 7.1); {−∞, ∞} for fewer than six.
std::pair<double, double> median_interval(std::span<const double> sorted);

/// Quantile between order statistics, share in [0, 1]; values sorted and not empty.
double quantile(std::span<const double> sorted, double share);

/// Whether the median is known closely enough.
bool is_narrow(std::span<const double> seconds, const SamplingLimits& limits);

/// The whole of some repeats; `seconds` must not be empty.
Sampled summarize(std::vector<double> seconds, const SamplingLimits& limits);

/// Several processes that measure together: each of these calls is made by all of them at the same
/// place. Alone, they do nothing.
struct Together {
  /// Starts a repeat at the same time everywhere.
  std::function<void()> barrier = [] {};
  /// The greatest value of any process.
  std::function<double(double)> greatest = [](double mine) { return mine; };
};

/// Measures until the median is narrow everywhere or a limit is reached. `run(n)` does the work n
/// times and returns the seconds that all of it took. Every process does equally many repeats, a
/// barrier before each, so that the work runs everywhere at once.
Sampled sample(const std::function<double(int times)>& run, const SamplingLimits& limits,
               const Together& together = {});

}  // namespace hydraulis
