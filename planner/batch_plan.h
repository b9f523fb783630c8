#pragma once

#include <cstdint>
#include <vector>

#include "planner/strategy.h"

namespace hydraulis {

/// One micro-batch: the sequences packed together, and padding tokens that cost linear time and
/// memory but no attention across sequences.
struct MicroBatch {
  std::vector<std::uint64_t> sequence_ids;
  std::vector<std::uint32_t> lengths;  ///< tokens, in the order of sequence_ids
  std::uint64_t padding = 0;           ///< tokens

  std::uint64_t tokens() const;  ///< without padding
  double sum_squares() const;    ///< Σs², tokens²
};

/// What one pipeline trains in an iteration: micro-batches in the order they enter the pipeline.
struct PipelinePlan {
  Scheme scheme;
  std::vector<MicroBatch> micro_batches;
  double time_seconds = 0;
  /// Phases of an iteration run one after the other, each on the whole cluster; 0 is the first, and
  /// pipelines stand in the order of their phases.
  int phase = 0;
};

/// One iteration's sequence assignment: dispatching over pipelines and packing into micro-batches.
struct BatchPlan {
  int strategy = 0;  ///< index in the strategy set
  std::vector<PipelinePlan> pipelines;
  /// Slowest pipeline by the schedule's own recurrence, summed over phases. With sharded parameters
  /// pipelines keep step: the slowest micro-batch of every step, summed over steps.
  double makespan_seconds = 0;
  double lower_bound_seconds = 0;      ///< no assignment on the chosen strategy is faster
  double set_lower_bound_seconds = 0;  ///< no assignment on any strategy of the set is faster
  double planning_seconds = 0;         ///< measured

  /// Phases of the iteration, at least 1.
  int phases() const { return pipelines.empty() ? 1 : pipelines.back().phase + 1; }
};

}  // namespace hydraulis
