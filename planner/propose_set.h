#pragma once

#include <optional>
#include <span>
#include <vector>

#include "planner/assignment.h"
#include "planner/proposal.h"
#include "traces/sampler.h"

namespace hydraulis {

/// A strategy set for a trace, thinned by sampled batches.
struct ProposedSet {
  StrategySet set;
  std::vector<DroppedScheme> dropped;
  std::size_t proposed = 0;   ///< strategies before thinning
  double seconds = 0;         ///< measured time of the dynamic program
  double sample_seconds = 0;  ///< of the sample on the set, parameter traffic included
};

/// Batches that sets are thinned by, fewer on large clusters; sequences over the context truncated.
std::vector<Batch> planning_sample(const LengthTrace& trace, std::uint64_t tokens_per_batch,
                                   std::uint64_t context, int devices);

/// The dynamic program's strategies and mixtures of two schemes, of which those are kept that the
/// sample's batches would use (all, where the sample is empty). `every_layout`: the homogeneous
/// strategy of every scheme is tried as well; `assignment`: how sampled batches are assigned, their
/// parameter traffic counted. Throws as propose() does.
ProposedSet propose_set(const LengthTrace& trace, const CostModel& model,
                        std::span<const SchemeOption> schemes, const ProposalOptions& options,
                        const AssignmentOptions& assignment, std::span<const Batch> sample,
                        bool every_layout);

/// Optimizer layout of the homogeneous strategy that is best over the sample, each with its own
/// layout; nothing when none holds the context.
std::optional<OptimizerLayout> best_homogeneous_optimizer(const CostModel& model,
                                                          const AssignmentOptions& assignment,
                                                          std::int64_t context,
                                                          std::span<const Batch> sample);

}  // namespace hydraulis
