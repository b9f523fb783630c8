#pragma once

#include <string>
#include <vector>

#include "planner/batch_plan.h"
#include "traces/sampler.h"

namespace hydraulis {

/// Checks a batch plan without trusting the code that made it. Returns what is wrong, one line a
/// problem, nothing when all is well: each of the batch's sequences with tokens exactly once and
/// with its length; no micro-batch empty or above its pipeline's limit (and `max_tokens_cap`, 0:
/// none); padding that context parallelism needs; pipeline times and makespan equal to the
/// schedule's recurrence, worked out here by its own means, phases added up; lower bounds not above
/// the makespan.
std::vector<std::string> verify(const BatchPlan& plan, const Batch& batch, const CostModel& model,
                                std::int64_t max_tokens_cap = 0);

}  // namespace hydraulis
