#pragma once

#include <array>

#include "planner/schedule_order.h"

namespace hydraulis {

/// How a list schedule chooses between what a stage could do at a moment.
struct ListRule {
  /// Forwards run ahead of backwards until as many micro-batches are alive as 1F1B would have; off:
  /// a backward always goes first.
  bool keep_ahead = false;
  /// A weight gradient (or, with whole backwards, a forward) does not start when a backward is
  /// known to arrive before this share of it is done; 0: it always starts.
  double patience = 0;
  /// Instead of all that, the fixed steps of 1F1B (of ZB-H1 with backwards in parts), where they
  /// keep to the memory limit.
  bool in_turn = false;
};

struct ListSchedule {
  StageSteps steps;
  double makespan = 0;
  ListRule rule;
};

/// Simulates the pipeline and lets every free stage take the best of what it has: backwards,
/// forwards that fit ScheduleWork::most_alive (a lone micro-batch always does), weight gradients.
/// Never deadlocks: what is alive on the last stage can always finish there. One chunk only. The
/// makespan is infinite where a rule breaks the limit.
ListSchedule list_schedule(const ScheduleWork& work, bool split_backward, const ListRule& rule);

/// Rules that best_list_schedule tries.
inline constexpr std::array kListRules = {
    ListRule{false, 0},   ListRule{true, 0},   ListRule{false, 0.25},   ListRule{true, 0.25},
    ListRule{false, 0.5}, ListRule{true, 0.5}, ListRule{false, 0, true}};

/// The fastest over kListRules.
ListSchedule best_list_schedule(const ScheduleWork& work, bool split_backward);

}  // namespace hydraulis
