#pragma once

#include "planner/batch_plan.h"
#include "planner/plan_build.h"
#include "report/notes.h"
#include "report/report.h"

namespace hydraulis {

/// `plan`: the JSON of the plan file, a table of schemes with their longest micro-batch and costs,
/// and the strategies.
Report plan_report(const PlanResult& result, const Notes& notes, bool reproducible);

/// `assign`: JSON {strategy, strategy_text, pipelines[{cp, tp, pp, time_ms, micro_batches, padding,
/// sequence_ids}], makespan_ms, lower_bound_ms, set_lower_bound_ms, planning_ms, sequences, tokens,
/// over_context{...}, unused_devices, notes[...]}; one row a pipeline. `planning_ms` is left out
/// when reproducible.
struct AssignContext {
  std::vector<Strategy> strategies;
  Notes notes;
  int devices = 0;                      ///< of the cluster
  std::uint64_t empty_sequences = 0;    ///< of length 0, left out
  std::uint64_t dropped_sequences = 0;  ///< by --over-context drop
  std::uint64_t over_context = 0;       ///< sequences over the context met
  std::uint64_t tokens_removed = 0;     ///< cut off or dropped
  bool reproducible = false;
};
Report assign_report(const BatchPlan& plan, const AssignContext& context);

}  // namespace hydraulis
