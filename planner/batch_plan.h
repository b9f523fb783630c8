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
};

/// One iteration's sequence assignment: dispatching over pipelines and packing into micro-batches.
struct BatchPlan {
  int strategy = 0;  ///< index in the strategy set
  std::vector<PipelinePlan> pipelines;
  double makespan_seconds = 0;         ///< slowest pipeline, the schedule's own recurrence
  double lower_bound_seconds = 0;      ///< no assignment on the chosen strategy is faster
  double set_lower_bound_seconds = 0;  ///< no assignment on any strategy of the set is faster
  double planning_seconds = 0;         ///< measured
};

}  // namespace hydraulis
