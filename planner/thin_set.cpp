#include "planner/thin_set.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/bounds.h"
#include "planner/policy.h"

namespace hydraulis {
namespace {

constexpr std::size_t kMostDispatched = 24;  ///< strategies dispatched per sample batch

}  // namespace

StrategySet thin_set(const StrategySet& set, const CostModel& model, std::span<const Batch> sample,
                     const AssignmentOptions& options, int most) {
  AssignmentOptions quick = options;
  quick.dispatch.evaluations = 0;
  quick.packing = {4, 12, 0};
  quick.rounds = 1;
  quick.repacks = 0;
  quick.count_parameter_traffic = true;
  const PreparedStrategies prepared = prepare(set, model, quick);
  const std::size_t strategies = set.strategies.size();
  const double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> seconds(sample.size(), std::vector<double>(strategies, never));
  for (std::size_t b = 0; b < sample.size(); ++b) {
    const std::vector<Sequence> sequences = sequences_of(sample[b]);
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t s = 0; s < strategies; ++s) {
      const double bound =
          makespan_lower_bound(prepared.pipelines[s], sequences, BoundEffort::quick);
      if (!std::isfinite(bound)) continue;
      seconds[b][s] = bound + prepared.traffic_seconds[s];
      order.emplace_back(seconds[b][s], s);
    }
    std::sort(order.begin(), order.end());
    // What cannot be near the best for this batch is not worth dispatching, nor are very many.
    constexpr double kFarFromBest = 1.05;
    std::size_t left = kMostDispatched;
    double least = never;
    for (const auto& [bound, s] : order) {
      if (s != 0 && (bound > kFarFromBest * least || left == 0)) {
        // Not looked at: as if it were no better than the first strategy.
        seconds[b][s] = never;
        continue;
      }
      if (left > 0) --left;
      const double traffic = prepared.traffic_seconds[s];
      seconds[b][s] =
          traffic +
          assign_on(sequences, prepared, static_cast<int>(s), bound - traffic).makespan_seconds;
      least = std::min(least, seconds[b][s]);
    }
  }
  std::vector<char> kept(strategies, 0);
  // Strategy 0 is the homogeneous optimizer layout, the fallback that holds every batch.
  kept[0] = 1;
  std::vector<double> best(sample.size());
  double total = 0;
  for (std::size_t b = 0; b < sample.size(); ++b) total += best[b] = seconds[b][0];
  for (int count = 1; count < most; ++count) {
    std::size_t chosen = 0;
    double chosen_total = total;
    for (std::size_t s = 1; s < strategies; ++s) {
      if (kept[s] != 0) continue;
      double with = 0;
      for (std::size_t b = 0; b < sample.size(); ++b) with += std::min(best[b], seconds[b][s]);
      if (with < chosen_total || (std::isinf(chosen_total) && chosen == 0 && std::isfinite(with))) {
        chosen = s;
        chosen_total = with;
      }
    }
    constexpr double kWorthKeeping = 0.999;
    if (chosen == 0 || (std::isfinite(total) && chosen_total > kWorthKeeping * total)) break;
    kept[chosen] = 1;
    total = chosen_total;
    for (std::size_t b = 0; b < sample.size(); ++b) best[b] = std::min(best[b], seconds[b][chosen]);
  }
  StrategySet thinned;
  thinned.optimizer = set.optimizer;
  for (std::size_t s = 0; s < strategies; ++s) {
    if (kept[s] != 0) thinned.strategies.push_back(set.strategies[s]);
  }
  return thinned;
}

}  // namespace hydraulis
