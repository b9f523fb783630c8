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

AssignmentOptions without_local_search(AssignmentOptions options) {
  options.dispatch.evaluations = 0;
  options.packing = {4, 12, 0};
  options.rounds = 1;
  options.repacks = 0;
  return options;
}

StrategySet thin_set(const StrategySet& set, const CostModel& model, std::span<const Batch> sample,
                     const AssignmentOptions& options, std::int64_t context, int most) {
  AssignmentOptions quick = without_local_search(options);
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
        // Not looked at: it holds the batch, but is taken to be no good for it.
        constexpr double kNotLookedAt = 2;
        seconds[b][s] *= kNotLookedAt;
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
  const auto holds_context = [&](std::size_t s) {
    return std::any_of(prepared.pipelines[s].begin(), prepared.pipelines[s].end(),
                       [&](const PipelineCost& p) { return p.padded(context) <= p.max_tokens; });
  };
  const auto sum = [&](std::size_t s) {
    double total = 0;
    for (const auto& batch : seconds) total += batch[s];
    return total;
  };
  std::vector<char> kept(strategies, 0);
  kept[0] = 1;
  if (!holds_context(0)) {
    std::size_t holder = 0;
    for (std::size_t s = 1; s < strategies; ++s) {
      if (holds_context(s) && (holder == 0 || sum(s) < sum(holder))) holder = s;
    }
    kept[holder] = 1;
  }
  std::vector<double> best(sample.size(), never);
  double total = 0;
  for (std::size_t b = 0; b < sample.size(); ++b) {
    for (std::size_t s = 0; s < strategies; ++s) {
      if (kept[s] != 0) best[b] = std::min(best[b], seconds[b][s]);
    }
    total += best[b];
  }
  for (int count = static_cast<int>(std::count(kept.begin(), kept.end(), 1)); count < most;
       ++count) {
    std::size_t chosen = 0;
    double chosen_total = total;
    for (std::size_t s = 1; s < strategies; ++s) {
      if (kept[s] != 0) continue;
      double with = 0;
      for (std::size_t b = 0; b < sample.size(); ++b) with += std::min(best[b], seconds[b][s]);
      if (with < chosen_total) {
        chosen = s;
        chosen_total = with;
      }
    }
    constexpr double kWorthKeeping = 0.999;
    if (chosen == 0 || chosen_total > kWorthKeeping * total) break;
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
