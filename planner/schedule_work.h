#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/batch_plan.h"
#include "planner/schedule_choice.h"

namespace hydraulis {

/// Seconds of one micro-batch on one run of layers.
struct PassSeconds {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;  ///< the part that nothing but the optimizer step waits for
  double backward() const { return backward_input + backward_weight; }
};

/// What a run of layers takes, as the profile tells it.
struct PassCost {
  StageCost whole;                   ///< forward and backward
  std::optional<StageCost> forward;  ///< alone; else kForwardShare of the whole
  /// The gradients of the weights take what the forward's products take; attention has none, so
  /// only the linear and the constant part count.
  PassSeconds of(double sum_squares, double tokens) const;
};

/// Costs of `layers` layers on the devices of one stage of the scheme. Throws InputError when the
/// profile does not know the scheme.
PassCost pass_cost(const CostModel& model, const Scheme& scheme, int layers, bool first, bool last);
/// The same of all layers of a stage.
PassCost pass_cost(const CostModel& model, const Scheme& scheme, int stage);

/// What a schedule is made for: one pipeline's micro-batches, in the order in which they enter it.
/// A virtual stage is a run of layers; number c · stages + s is the c-th of stage s.
struct ScheduleWork {
  int stages = 1;
  int chunks = 1;
  int micro_batches = 0;
  std::vector<PassSeconds> seconds;  ///< [virtual stage · micro_batches + micro-batch]
  std::vector<double> tokens;        ///< of each micro-batch, as memory counts them
  std::vector<double> share;         ///< [virtual stage]: part of its stage's layers
  /// [stage]: tokens (times the share of layers) that may be alive at once; empty: any number.
  std::vector<double> most_alive;

  int virtual_stages() const { return stages * chunks; }
  const PassSeconds& at(int virtual_stage, int micro_batch) const {
    return seconds[static_cast<std::size_t>(virtual_stage) *
                       static_cast<std::size_t>(micro_batches) +
                   static_cast<std::size_t>(micro_batch)];
  }
};

/// The work of a pipeline, with the live tokens its memory model allows: `published` as many as pp
/// of the longest micro-batches have, `composed` what is left of the stage's memory.
ScheduleWork schedule_work(const CostModel& model, const Scheme& scheme,
                           std::span<const MicroBatch> micro_batches, const ScheduleChoice& choice);

/// The same work with the micro-batches in another order.
ScheduleWork reordered(const ScheduleWork& work, std::span<const int> order);

/// Equal or unequal micro-batches on equal stages, without a memory limit.
ScheduleWork even_work(int stages, int chunks, std::span<const PassSeconds> micro_batches);

}  // namespace hydraulis
