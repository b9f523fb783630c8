#include "planner/bubble.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace hydraulis {
namespace {

constexpr int kFirstStages = 2;
constexpr int kLastStages = 16;
constexpr int kMostMicroBatches = 32;
constexpr double kLeast[kLastStages - kFirstStages + 1][kMostMicroBatches] = {
#include "planner/bubble_table.inc"
};

// As in experiments/derive_long_table.py.
constexpr int kLongStages[] = {2, 3, 4, 6, 8};
constexpr double kWeights[] = {0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 6, 10, 16, 32};
constexpr double kWeightedWork[std::size(kLongStages)][kMostMicroBatches + 1][std::size(kWeights)] =
    {
#include "planner/long_table.inc"
};

// As in experiments/derive_several_table.py.
constexpr int kSeveralFirst = 2;
constexpr int kSeveralLast = 3;
constexpr int kSeveralLastStages = 4;
constexpr int kSeveralMostMicroBatches = 16;
constexpr double kSeveralWork[kSeveralLast - kSeveralFirst + 1][kSeveralLastStages - 1]
                             [kSeveralMostMicroBatches][std::size(kWeights)] = {
#include "planner/several_table.inc"
};

/// Calls visit(limits, seconds) for every row of limits work + kWeights[i]·seconds ≤
/// limits[i]·makespan that is known beyond least_bubble_factor().
template <typename Visit>
void visit_limits(int stages, std::int64_t micro_batches, std::span<const double> longest,
                  const Visit& visit) {
  const auto* const row = std::find(std::begin(kLongStages), std::end(kLongStages), stages);
  if (longest.empty() || row == std::end(kLongStages)) return;
  const std::int64_t column = std::min<std::int64_t>(micro_batches, kMostMicroBatches + 1) - 1;
  visit(kWeightedWork[row - std::begin(kLongStages)][column], longest.front());
  if (stages > kSeveralLastStages || micro_batches > kSeveralMostMicroBatches) return;
  double together = longest.front();
  for (std::size_t k = kSeveralFirst; k <= std::min<std::size_t>(longest.size(), kSeveralLast);
       ++k) {
    together += longest[k - 1];
    visit(kSeveralWork[k - kSeveralFirst][stages - 2][micro_batches - 1], together);
  }
}

}  // namespace

double least_bubble_factor(int stages, std::int64_t micro_batches) {
  if (stages <= 1) return 1;
  if (stages <= kLastStages && micro_batches <= kMostMicroBatches) {
    return kLeast[stages - kFirstStages][micro_batches - 1];
  }
  // Micro-batches of at least θ give a makespan C of at least their sum + (p−1)·θ; sizes that
  // satisfy this for every θ sum to at most C·(1−(1−1/p)^v).
  return 1 / (1 - std::pow(1 - 1.0 / stages, static_cast<double>(micro_batches)));
}

// Limits are convex in the weight, so along a row what they leave first gets tighter and then
// looser: both walks stop where it turns.

double most_work(int stages, std::int64_t micro_batches, double makespan,
                 std::span<const double> longest) {
  constexpr double kRounding = 1e-9;
  if (!longest.empty() && stages * longest.front() > makespan * (1 + kRounding)) return -1;
  const double unlimited = makespan / least_bubble_factor(stages, micro_batches);
  double most = unlimited;
  visit_limits(stages, micro_batches, longest, [&](const auto& limits, double seconds) {
    double before = unlimited;
    for (std::size_t i = 0; i < std::size(kWeights); ++i) {
      const double work = limits[i] * makespan - kWeights[i] * seconds;
      if (work >= before) break;
      before = work;
    }
    most = std::min(most, before);
  });
  return most;
}

double least_makespan(int stages, std::int64_t micro_batches, double work,
                      std::span<const double> longest) {
  const double unlimited = work * least_bubble_factor(stages, micro_batches);
  double least = unlimited;
  if (!longest.empty()) least = std::max(least, stages * longest.front());
  visit_limits(stages, micro_batches, longest, [&](const auto& limits, double seconds) {
    double before = unlimited;
    for (std::size_t i = 0; i < std::size(kWeights); ++i) {
      const double makespan = (work + kWeights[i] * seconds) / limits[i];
      if (makespan <= before) break;
      before = makespan;
    }
    least = std::max(least, before);
  });
  return least;
}

}  // namespace hydraulis
