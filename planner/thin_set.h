#pragma once

#include <cstdint>
#include <span>

#include "planner/assignment.h"
#include "traces/sampler.h"

namespace hydraulis {

/// The same options with as little work as an estimate needs: no local search, few packings. What
/// is dropped costs a strategy about as much as any other, so that they still compare.
AssignmentOptions without_local_search(AssignmentOptions options);

/// Keeps the strategies that matter. The first one stays, and so does whichever of those that hold
/// `context` tokens is best over the sample, so that no batch is left without a strategy; then the
/// strategy that saves most time (assignment without local search, parameter traffic included) is
/// added until `most` are kept or the next would save less than 0.1 %. Kept strategies stay in
/// their order. Precondition: some strategy holds the context.
StrategySet thin_set(const StrategySet& set, const CostModel& model, std::span<const Batch> sample,
                     const AssignmentOptions& options, std::int64_t context, int most);

}  // namespace hydraulis
