#pragma once

#include "costmodel/cost_model.h"
#include "planner/program/program.h"

namespace hydraulis {

/// Memory of one device of a stage for this program by the composed memory model, with the
/// micro-batches that are really alive there at once.
StageMemory estimate_stage_memory(const CostModel& model, const Program& program, int stage);

/// The fullest device of the program. A switch between two phases needs no more than the phases:
/// the parameters of both are there then, but no gradients, which take at least as much.
StageMemory estimate_memory(const CostModel& model, const Program& program);

}  // namespace hydraulis
