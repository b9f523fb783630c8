#pragma once

#include "costmodel/cost_model.h"
#include "planner/program/program.h"

namespace hydraulis {

/// Memory of one device of a stage for this program by the composed memory model, with the
/// micro-batches that are really alive there at once.
StageMemory estimate_stage_memory(const CostModel& model, const Program& program, int stage);

/// The fullest device of the program.
StageMemory estimate_memory(const CostModel& model, const Program& program);

}  // namespace hydraulis
