#pragma once

#include <cstdint>

#include "planner/program/program.h"
#include "planner/schedule_choice.h"

namespace hydraulis {

using LowerOptions = ScheduleChoice;

/// Whether a stage's exchange of parameters and gradients runs beside its computation. `on`: the
/// first forward and the last backward of every run of layers are cut into one piece for each
/// gather or reduction, so that a layer is computed as soon as its own parameters are there, and
/// its gradients leave while the layers before it still compute. `off`: all parameters come before
/// the first forward, all gradients leave after the last backward. Bytes and messages are the same.
enum class Overlap : std::uint8_t { off, on };

/// Lowers one iteration's assignment to a Program: placement of stages on devices (published.md
/// 3.10: pipelines by descending tp, a tensor-parallel group inside a node), one instruction stream
/// a stage in the schedule's order over the plan's micro-batches as they stand, parameter gather
/// ahead of use, gradient reduction behind the last backward (Overlap), norm, optimizer step.
/// Pipelines without micro-batches still take part in gather, reduction and the step. Schedules
/// that look at times (needs_times) throw InputError where the profile has none for a scheme.
/// Sharded parameters move beside the computation in any case.
Program lower(const BatchPlan& plan, const CostModel& model, const LowerOptions& options = {},
              Overlap overlap = Overlap::off);

}  // namespace hydraulis
