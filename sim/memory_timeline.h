#pragma once

#include <cstddef>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/program/program.h"
#include "sim/replay.h"

namespace hydraulis {

/// Bytes on each device of a stage from `seconds` on.
struct MemoryPoint {
  double seconds = 0;
  StageMemory memory;
};

/// What a stage holds over an iteration by the composed memory model, from nothing alive on: a
/// point at the start and wherever a micro-batch's activations come (its forward begins) or go (its
/// backward, in parts the weights' part, has ended). Logits and buffers are there all the time, as
/// large as the largest micro-batch needs them.
std::vector<std::vector<MemoryPoint>> memory_timeline(const Program& program, const Replay& replay,
                                                      const CostModel& model);

/// Where most is held at any time: the stage that decides whether an iteration fits.
struct MemoryPeak {
  int stage = 0;  ///< global index
  MemoryPoint point;
};
MemoryPeak memory_peak(const std::vector<std::vector<MemoryPoint>>& timeline);

}  // namespace hydraulis
