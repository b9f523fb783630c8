#pragma once

#include "planner/program/program.h"

namespace hydraulis {

/// Instruction streams of a program with sharded parameters, whose stages stand in their places.
/// Every pass of every micro-batch: a barrier, the first layer's gather, the exchanges of context
/// parallelism, then the computation beside the gather of the other layers; a backward's gradients
/// are reduced beside it, those of the layer it ends with after it. Pipelines with fewer
/// micro-batches than the most of their phase take part in every collective all the same. As
/// DeepSpeed's ZeRO-3 and PyTorch's fully sharded data parallelism do it, with one layer fetched
/// ahead.
void write_sharded_streams(Program& program, const CostModel& model);

/// The sum of squares over all devices, by doubling.
Instruction make_norm(const Program& program);

}  // namespace hydraulis
