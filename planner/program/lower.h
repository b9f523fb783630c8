#pragma once

#include "planner/program/program.h"

namespace hydraulis {

/// Pipeline schedules that lowering knows.
enum class Schedule { one_f_one_b, gpipe };

struct LowerOptions {
  Schedule schedule = Schedule::one_f_one_b;
};

/// Lowers one iteration's assignment to a Program: placement of stages on devices (published.md
/// 3.10: pipelines by descending tp, a tensor-parallel group inside a node), one instruction stream
/// a stage in the schedule's order over the plan's micro-batches as they stand, parameter gather
/// ahead of use, gradient reduction behind the last backward, norm, optimizer step.
/// Pipelines without micro-batches still take part in gather, reduction and the step.
Program lower(const BatchPlan& plan, const CostModel& model, const LowerOptions& options = {});

}  // namespace hydraulis
