#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/packing.h"

namespace hydraulis {

/// How much work dispatching may do; limits count evaluations, never time.
struct DispatchEffort {
  std::int64_t evaluations = 400'000;  ///< time estimates in the local search, all rounds together
  int restarts = 6;                    ///< ruin-and-recreate rounds
  double good_enough = 1.002;          ///< stop when the estimate is this close to `lower_bound`
};

/// Sequences by pipeline (indices into the batch), and the estimated makespan.
struct Dispatching {
  std::vector<std::vector<int>> sequences;
  double estimated_seconds = 0;
};

/// Estimated seconds of a pipeline with the given load: work (Σ a·s² + b·s), tokens, the
/// seconds of its longest sequences (one to three, longest first), and the number of sequences that
/// cannot share a micro-batch. Counts the constant per micro-batch and the bubbles; `correction` is
/// packed ÷ estimated time seen before.
double estimate_pipeline_seconds(const PipelineCost& pipeline, double work, std::int64_t tokens,
                                 std::span<const double> longest, std::int64_t large);

/// Decides which pipeline trains each sequence: longest first to the pipeline that would finish it
/// earliest, then moves and swaps that lower the slowest pipeline, then ruin-and-recreate rounds.
/// Pipelines may stay empty; equal pipelines share ties evenly. `corrections` scales each
/// pipeline's estimate (empty: all 1). Deterministic. Precondition: some pipeline holds every
/// sequence.
Dispatching dispatch(std::span<const PipelineCost> pipelines, std::span<const Sequence> sequences,
                     std::span<const double> corrections, double lower_bound,
                     const DispatchEffort& effort = {});

}  // namespace hydraulis
