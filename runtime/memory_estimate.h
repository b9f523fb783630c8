#pragma once

#include "costmodel/cost_model.h"
#include "kernels/matrix.h"
#include "planner/program/program.h"

namespace hydraulis {

/// What the runtime keeps of a number: parameters, gradients, activations and logits in the
/// computing type; master, summed gradient and two moments in the fixed layout.
NumberBytes runtime_numbers(DataType type);

/// Memory of one device of a stage for this program by the composed memory model, with the
/// micro-batches that are really alive there at once.
StageMemory estimate_stage_memory(const CostModel& model, const Program& program, int stage);

/// The fullest device of the program.
StageMemory estimate_memory(const CostModel& model, const Program& program);

}  // namespace hydraulis
