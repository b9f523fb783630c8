#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/proposal.h"
#include "planner/strategy.h"
#include "traces/length_trace.h"

namespace hydraulis {

/// What candidates are made for.
struct TunePoolRequest {
  CostModel model;              ///< with the optimizer layout
  std::int64_t context = 0;     ///< tokens
  std::int64_t max_tokens = 0;  ///< cap on a micro-batch, tokens; 0: none
  std::int64_t tokens_per_batch = 0;
  std::int64_t shortest_reach = 0;  ///< some batch has no longer sequence than this, tokens
};

/// Candidates from scratch: every homogeneous strategy that uses all devices, the dynamic program's
/// solutions for the trace, mixtures of two schemes. No duplicates. Throws as propose() does.
std::vector<Strategy> candidate_strategies(const LengthTrace& trace,
                                           const TunePoolRequest& request);

/// Strategies one step away: some pipelines of one scheme given up for pipelines of another that
/// use as many devices (which splits, merges or swaps them), in the smallest number, twice that,
/// half of all and all. `schemes` are those that may come in.
std::vector<Strategy> neighbours(const Strategy& strategy, std::span<const Scheme> schemes);

/// What the dynamic program proposes for one batch alone, most capable first; at most `most`.
std::vector<Strategy> strategies_for_batch(std::span<const std::uint32_t> lengths,
                                           const TunePoolRequest& request, std::size_t most);

/// Optimizer layouts over the whole cluster with the tensor and pipeline degrees that the cost
/// model's schemes have.
std::vector<OptimizerLayout> optimizer_layouts(const CostModel& model);

}  // namespace hydraulis
