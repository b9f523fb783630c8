#pragma once

#include "costmodel/cost_model.h"
#include "planner/batch_plan.h"
#include "planner/schedule_search.h"

namespace hydraulis {

/// Puts a plan under another schedule than the 1F1B it was made for: the order of every pipeline's
/// micro-batches is chosen anew, its time and the makespan become the schedule's own recurrence,
/// equal to `simulate --no-communication`. Lower bounds, which are of 1F1B, become 0 (unknown).
/// With 1F1B nothing changes. A pure function, so plans can be put under a schedule on any thread.
void put_under_schedule(BatchPlan& plan, const CostModel& model, const ScheduleChoice& choice,
                        std::int64_t steps = 0);

}  // namespace hydraulis
