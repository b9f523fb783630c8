#pragma once

#include <cstdint>
#include <vector>

#include "planner/schedule_order.h"

namespace hydraulis {

/// An order of a pipeline's micro-batches and what the schedule makes of it.
struct OrderedSchedule {
  std::vector<int> order;  ///< order[k] is the micro-batch that enters as the k-th
  StageSteps steps;        ///< numbered by that order
  double makespan = 0;
};

/// Steps of schedules that an order's search runs through for one pipeline unless told otherwise: a
/// few milliseconds, and some dozens of whole schedules where those are long.
std::int64_t usual_search_steps(const ScheduleWork& work);

/// Chooses the order of unequal micro-batches for a schedule: as they stand, sorted, ramped (small
/// ones at the start, or at both ends, shorten filling and draining), then moves and swaps while
/// they help, until `steps` (0: the usual) have been run through. Deterministic, and never worse
/// than as they stand.
OrderedSchedule order_for_schedule(const ScheduleChoice& choice, const ScheduleWork& work,
                                   std::int64_t steps = 0);

/// No schedule of this work, in any order of its micro-batches, is faster. Proof, for a stage s:
/// its first forward comes after some micro-batch's forwards on the stages before it, and after its
/// last backward some micro-batch's backwards on those stages are left (with backwards in parts
/// nothing need be left); in between lies all its work. Nor can it be left in less time than the
/// token-seconds of its live micro-batches, each there at least for its own way to the last virtual
/// stage and back, take at the most tokens that may be alive.
double schedule_lower_bound(const ScheduleWork& work, bool split_backward);

/// Whether the schedule runs backwards in two parts.
bool splits_backward(Schedule schedule);

}  // namespace hydraulis
