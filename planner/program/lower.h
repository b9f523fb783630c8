#pragma once

#include "planner/program/program.h"
#include "planner/schedule_choice.h"

namespace hydraulis {

using LowerOptions = ScheduleChoice;

/// Lowers one iteration's assignment to a Program: placement of stages on devices (published.md
/// 3.10: pipelines by descending tp, a tensor-parallel group inside a node), one instruction stream
/// a stage in the schedule's order over the plan's micro-batches as they stand, parameter gather
/// ahead of use, gradient reduction behind the last backward, norm, optimizer step.
/// Pipelines without micro-batches still take part in gather, reduction and the step. Schedules
/// that look at times (needs_times) throw InputError where the profile has none for a scheme.
Program lower(const BatchPlan& plan, const CostModel& model, const LowerOptions& options = {});

}  // namespace hydraulis
