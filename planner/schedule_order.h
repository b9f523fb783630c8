#pragma once

#include <cstdint>
#include <vector>

#include "planner/schedule_work.h"

namespace hydraulis {

/// What a step of a stage's compute stream does.
enum class Pass : std::uint8_t { forward, backward, backward_input, backward_weight };

/// One step of a stage's compute stream.
struct ComputeStep {
  Pass pass = Pass::forward;
  int micro_batch = 0;
  int chunk = 0;  ///< which of the stage's runs of layers
  bool operator==(const ComputeStep&) const = default;
};

/// The compute streams of all stages of a pipeline. Virtual stages run micro-batches in the order
/// in which they stand; only how the passes interleave is the schedule's.
using StageSteps = std::vector<std::vector<ComputeStep>>;

/// The order in which stage `stage` of `stages` runs `micro_batches` micro-batches, for schedules
/// that need no times (see needs_times):
///   - gpipe: all forwards, then all backwards;
///   - one_f_one_b: min(stages − 1 − stage, micro_batches) forwards, then forward and backward in
///     turn, then the backwards that are left; at most min(stages − stage, micro_batches) alive;
///   - interleaved: groups of at least `stages` micro-batches pass through chunk after chunk, after
///     2·(stages − 1 − stage) + (chunks − 1)·group forwards in turn with backwards; fewer
///     micro-batches than stages all go forward first;
///   - zero_bubble_h1: 1F1B of forwards and input gradients; the weight gradients of a micro-batch
///     follow `stage` micro-batches later, so that no stage has more alive than the first.
std::vector<ComputeStep> schedule_order(const ScheduleChoice& choice, int stages, int stage,
                                        int micro_batches);

/// The compute streams of a pipeline under any schedule.
StageSteps schedule_steps(const ScheduleChoice& choice, const ScheduleWork& work);

/// Makespan by the streams' own recurrence and without transfer time: a step starts when the stage
/// is free and its input is there. Infinite where the streams wait for one another for ever.
double steps_makespan(const ScheduleWork& work, const StageSteps& steps);

/// Most tokens (times the share of layers) alive on each stage: forward begun, backward (its weight
/// part too) not ended.
std::vector<double> peak_alive(const ScheduleWork& work, const StageSteps& steps);

}  // namespace hydraulis
