#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/batch_plan.h"
#include "planner/dispatch.h"
#include "planner/packing.h"

namespace hydraulis {

struct AssignmentOptions {
  std::int64_t max_tokens = 0;  ///< cap on a micro-batch in tokens; 0: what memory allows
  DispatchEffort dispatch;
  PackingEffort packing;
  int rounds = 3;  ///< dispatch–pack rounds per strategy, each learning from the last
  /// Packings tried for moves and swaps at the end, per strategy; one on a single stage, which is
  /// quickly done, counts a quarter.
  int repacks = 48;
  /// Choose the strategy by makespan plus its parameter traffic, which differs between strategies;
  /// off, by makespan alone.
  bool count_parameter_traffic = false;
  /// Count of the traffic what computation does not hide (exposed_traffic_seconds), as it is when
  /// iterations run with Overlap::on.
  bool traffic_overlaps = false;
};

/// A strategy set made ready for assignment: pipeline costs are computed once, not every iteration.
struct PreparedStrategies {
  std::vector<Strategy> strategies;
  std::vector<std::vector<PipelineCost>> pipelines;  ///< by strategy
  std::vector<double> traffic_seconds;               ///< by strategy; 0 where not counted
  AssignmentOptions options;
};

/// A strategy's parameter traffic as the options count it, seconds.
double counted_traffic_seconds(const Strategy& strategy, const CostModel& model,
                               const AssignmentOptions& options);

PreparedStrategies prepare(const StrategySet& set, const CostModel& model,
                           const AssignmentOptions& options = {});

/// The two-stage assignment of one batch: dispatch over unequal pipelines, pack into micro-batches,
/// on every strategy that could still be the best (bounds decide), keeping the fastest.
/// With parameter traffic counted, set_lower_bound_seconds is the least bound plus traffic of any
/// strategy, less the chosen strategy's traffic. Sequences of length 0 must have been left out.
/// Deterministic, bounded by work. Throws InfeasibleError when no strategy holds the longest
/// sequence: says by how much, and the longest that fits.
BatchPlan assign(std::span<const Sequence> sequences, const PreparedStrategies& prepared);

/// The assignment on one strategy alone, with its lower bound. `strategy` must be able to hold the
/// longest sequence.
BatchPlan assign_on(std::span<const Sequence> sequences, const PreparedStrategies& prepared,
                    int strategy, double lower_bound);

}  // namespace hydraulis
