#include "costmodel/profiler/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hydraulis {
namespace {

constexpr double kTail = 0.025;  // on either side of a 95 % interval
constexpr double kOutlierRange = 3;
constexpr int kMostTimes = 1 << 20;
/// Repeats between two looks at the interval: every look is one message more.
constexpr int kRound = 4;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

/// Runs until two rounds agree; gives back the seconds of one execution.
double warm_up(const std::function<double(int)>& run, const SamplingLimits& limits,
               const Together& together) {
  double before = 0;
  double total = 0;
  int done = 0;
  for (int count = 1;; count = std::min(2 * count, limits.most_warm_ups - done)) {
    std::vector<double> round;
    for (int i = 0; i < count; ++i) {
      together.barrier();
      round.push_back(run(1));
      total += round.back();
    }
    done += count;
    const double now = median(round);
    const bool settled = done > count && std::abs(now - before) <= limits.steady_share * before;
    before = now;
    if (done >= limits.most_warm_ups || together.greatest(settled ? 0 : 1) == 0 ||
        together.greatest(total) >= limits.most_warm_up_seconds) {
      return now;
    }
  }
}

}  // namespace

double quantile(std::span<const double> sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = place - static_cast<double>(below);
  return sorted[below] * (1 - part) + sorted[above] * part;
}

std::pair<double, double> median_interval(std::span<const double> sorted) {
  // The k-th smallest is over the median with the probability that fewer than k of n fair coins
  // fall heads; the greatest k for which that is small enough gives the interval.
  const auto n = static_cast<double>(sorted.size());
  double below = 0;
  std::size_t k = 0;
  for (; k < sorted.size() / 2; ++k) {
    const auto heads = static_cast<double>(k);
    below += std::exp(std::lgamma(n + 1) - std::lgamma(heads + 1) - std::lgamma(n - heads + 1) -
                      n * std::log(2.0));
    if (below > kTail) break;
  }
  if (k == 0) {
    constexpr double kEndless = std::numeric_limits<double>::infinity();
    return {-kEndless, kEndless};
  }
  return {sorted[k - 1], sorted[sorted.size() - k]};
}

bool is_narrow(std::span<const double> seconds, const SamplingLimits& limits) {
  std::vector<double> sorted(seconds.begin(), seconds.end());
  std::sort(sorted.begin(), sorted.end());
  const auto [low, high] = median_interval(sorted);
  return high - low <= 2 * limits.relative_interval * quantile(sorted, 0.5);
}

Sampled summarize(std::vector<double> seconds, const SamplingLimits& limits) {
  Sampled result;
  result.time.steady = is_narrow(seconds, limits);
  std::sort(seconds.begin(), seconds.end());
  result.time.median_seconds = quantile(seconds, 0.5);
  result.time.low_seconds = quantile(seconds, 0.1);
  result.time.high_seconds = quantile(seconds, 0.9);
  result.time.repeats = static_cast<int>(seconds.size());
  if (result.time.median_seconds > 0) {
    result.spread =
        (result.time.high_seconds - result.time.low_seconds) / result.time.median_seconds;
  }
  const double first = quantile(seconds, 0.25);
  const double third = quantile(seconds, 0.75);
  const double reach = kOutlierRange * (third - first);
  result.outliers = static_cast<int>(std::ranges::count_if(
      seconds, [&](double x) { return x < first - reach || x > third + reach; }));
  return result;
}

Sampled sample(const std::function<double(int times)>& run, const SamplingLimits& limits,
               const Together& together) {
  const double once = together.greatest(warm_up(run, limits, together));
  const double wanted = limits.least_seconds_a_repeat / std::max(once, 1e-9);
  const int times = static_cast<int>(std::clamp(std::ceil(wanted), 1.0, double{kMostTimes}));
  std::vector<double> seconds;
  double total = 0;
  for (;;) {
    for (int i = 0; i < kRound; ++i) {
      together.barrier();
      const double taken = run(times);
      total += taken;
      seconds.push_back(taken / times);
    }
    const auto repeats = static_cast<int>(seconds.size());
    if (repeats >= limits.most_repeats) break;
    const bool enough = repeats >= limits.least_repeats && is_narrow(seconds, limits);
    if (together.greatest(enough ? 0 : 1) == 0) break;
    if (together.greatest(total) >= limits.most_seconds && repeats >= kRound) break;
  }
  return summarize(std::move(seconds), limits);
}

}  // namespace hydraulis
