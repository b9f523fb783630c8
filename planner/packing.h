#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/pipeline_cost.h"

namespace hydraulis {

/// A sequence to be placed: its id and its length in tokens.
struct Sequence {
  std::uint64_t id = 0;
  std::uint32_t length = 0;
};

/// Packs items of the given sizes into as few bins of `capacity` as the heuristics find: first-fit
/// decreasing in O(n log n), then, where that misses the bound, bins filled one by one as full as
/// subset sums allow. Never more bins than first-fit decreasing. Sizes must be in [1, capacity].
/// Returns the items of each bin, by index.
std::vector<std::vector<int>> pack_fewest_bins(std::span<const std::int64_t> sizes,
                                               std::int64_t capacity);

/// A lower bound on the number of bins: the volume bound, and the bound of items that cannot share
/// a bin (Martello and Toth's L2).
std::int64_t bins_lower_bound(std::span<const std::int64_t> sizes, std::int64_t capacity);

/// Distributes items over bins so that their weights come close to the given shares of the whole,
/// longest first into the bin that lacks most, keeping each bin's size within `capacity`; an empty
/// result when that greedy pass finds no room.
std::vector<std::vector<int>> pack_to_shares(std::span<const std::int64_t> sizes,
                                             std::span<const double> weights, std::int64_t capacity,
                                             std::span<const double> shares);

/// How much work packing may do; every limit counts operations, never time.
struct PackingEffort {
  int bin_counts = 20;           ///< numbers of micro-batches tried on a pipelined scheme
  int order_evaluations = 60;    ///< schedule evaluations per number of micro-batches
  int polish_evaluations = 600;  ///< schedule evaluations spent on moving sequences at the end
};

/// Packs one pipeline's sequences into micro-batches and orders them, minimising the pipeline's
/// time (not its token count) under its memory limit. On a single stage time is the plain sum, so
/// the fewest micro-batches are best; with pp stages every number of micro-batches around the
/// optimum of (v+pp−1)·(W/v+c) is tried and the schedule's own recurrence decides. Every sequence
/// must fit (padded length at most max_tokens).
PipelinePlan pack_pipeline(const PipelineCost& pipeline, std::span<const Sequence> sequences,
                           const PackingEffort& effort = {});

}  // namespace hydraulis
