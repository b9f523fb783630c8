#pragma once

#include <vector>

#include "planner/program/lower.h"
#include "planner/program/phases.h"
#include "planner/schedule_order.h"

namespace hydraulis {

/// What a stage of a program with replicated parameters does in an iteration.
struct StageWork {
  const std::vector<ComputeStep>& steps;  ///< in the schedule's order
  StageTraffic traffic;
  int phases = 1;  ///< of the program
  Overlap overlap = Overlap::off;
};

/// The instruction stream of stage `stage` (global index) of a program whose stages stand in their
/// places: gathers, computation with its sends and receives, reductions, norm and optimizer step.
std::vector<Instruction> stage_instructions(const Program& program, const CostModel& model,
                                            int stage, const StageWork& work);

}  // namespace hydraulis
