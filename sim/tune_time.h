#pragma once

#include "planner/program/program.h"
#include "sim/replay.h"

namespace hydraulis {

/// Where an iteration's time went, in seconds, as means over all devices of the cluster; the five
/// add up to the iteration's time.
struct TimeShares {
  double compute = 0;        ///< something is computed
  double communication = 0;  ///< data moves and nothing is computed
  double bubble = 0;         ///< idle before the device's own pipeline has computed all
  double waiting = 0;        ///< idle after that: slower pipelines are waited for
  double unused = 0;         ///< devices without a stage

  TimeShares& operator+=(const TimeShares& other);
  TimeShares scaled(double factor) const;
};

/// Splits the makespan of a replayed program. A device's idle time counts as waiting from the
/// moment its pipeline's last stage to finish has computed its last micro-batch (gradients may move
/// after that), and as bubble before.
TimeShares where_time_went(const Program& program, const Replay& replay);

}  // namespace hydraulis
