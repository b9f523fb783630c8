#pragma once

#include "costmodel/cost_model.h"
#include "planner/batch_plan.h"

namespace hydraulis {

/// Seconds that an iteration on this strategy spends moving parameters from the optimizer layout
/// and gradients back, on its busiest stage and without overlap: what a strategy costs however
/// little it computes. Bytes are those of the lowered program's gather and reduce instructions;
/// links as in the cluster, without contention.
double parameter_traffic_seconds(const Strategy& strategy, const CostModel& model);

/// The same of an iteration that may have several phases, each with its busiest stage: what its
/// switches move counts, what stays in place does not.
double parameter_traffic_seconds(const BatchPlan& plan, const CostModel& model);

}  // namespace hydraulis
