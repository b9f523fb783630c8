#pragma once

#include <vector>

#include "planner/program/lower.h"

namespace hydraulis {

/// One step of a stage's compute stream.
struct ComputeStep {
  bool is_forward = true;
  int micro_batch = 0;
  bool operator==(const ComputeStep&) const = default;
};

/// The order in which stage `stage` of `stages` runs the forwards and backwards of `micro_batches`
/// micro-batches. GPipe: all forwards, then all backwards, first micro-batch first. 1F1B:
/// min(stages - 1 - stage, micro_batches) forwards, then forward and backward in turn, then the
/// backwards that are left; so at most min(stages - stage, micro_batches) are alive.
std::vector<ComputeStep> schedule_order(Schedule schedule, int stages, int stage,
                                        int micro_batches);

}  // namespace hydraulis
