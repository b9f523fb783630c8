#pragma once

#include "costmodel/cost_model.h"
#include "planner/program/program.h"
#include "sim/replay.h"

namespace hydraulis {

/// Where the device time of an iteration went, device-seconds. The parts are everything there is:
/// their sum is devices · makespan.
struct Losses {
  double work = 0;       ///< computing tokens that are trained
  double padding = 0;    ///< computing tokens that are not
  double optimizer = 0;  ///< the optimizer's step
  double exposed = 0;    ///< moving data while nothing is computed
  double bubble = 0;     ///< idle while the device's own pipeline is at work (and behind the step)
  double straggler = 0;  ///< idle when it has ended and another pipeline has not
  double unused = 0;     ///< devices that no pipeline has

  double whole() const {
    return work + padding + optimizer + exposed + bubble + straggler + unused;
  }
  void add(const Losses& other);
};

/// Splits a replay's device time. What padding costs is told by the cost model: the part of each
/// pass's time that it would not take without its padding.
Losses split_losses(const Program& program, const Replay& replay, const CostModel& model);

}  // namespace hydraulis
