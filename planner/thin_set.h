#pragma once

#include <span>

#include "planner/assignment.h"
#include "traces/sampler.h"

namespace hydraulis {

/// Keeps the strategies that matter: starting from the one that is best for every sample batch it
/// must hold, the strategy that saves most time over the sample (assignment without local search,
/// parameter traffic included) is added until `most` are kept or the next would save less than 0.1
/// %. Kept strategies stay in their order.
StrategySet thin_set(const StrategySet& set, const CostModel& model, std::span<const Batch> sample,
                     const AssignmentOptions& options, int most);

}  // namespace hydraulis
