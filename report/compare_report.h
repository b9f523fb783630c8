#pragma once

#include <string>
#include <vector>

#include "report/notes.h"
#include "report/report.h"
#include "report/token_cost.h"
#include "sim/iterations.h"

namespace hydraulis {

/// One system's simulated run.
struct PolicyRun {
  std::string name;
  RunSummary summary;
  /// Beside the result: the layout found, data delayed or reordered, what the preset lacks.
  std::string remark;
  std::vector<Strategy> strategies = {};  ///< that it chooses from
  std::string infeasible = {};            ///< why there is no result: what does not fit, what would
  double planning_seconds = 0;            ///< measured, of an iteration in the mean
  double most_planning_seconds = 0;       ///< of the iteration that took longest
};

struct CompareContext {
  int devices = 0;
  Notes notes;
  bool reproducible = false;  ///< leave measured times out
  DeviceRates rates = {};     ///< what device time is worth
};

/// `compare`: JSON {policies[{name, mean_ms, p95_ms, tokens_per_second, mfu, bubble_share, speedup,
/// days_per_trillion_tokens, device_hours_per_trillion_tokens, exposed_communication_ms, p50_ms,
/// p99_ms, device_hours_per_billion_tokens, kilowatt_hours_per_billion_tokens,
/// cost_per_billion_tokens (null where not known), losses{work, padding, optimizer,
/// exposed_communication, bubble, straggler, unused}, unused_devices (the most that one of its
/// strategies leaves), remark, wall_seconds}], speedup_against, devices, notes[...]}, one CSV row
/// and one text row a policy. `speedup` is the mean time of `speedup_against`, the first policy
/// that is feasible, over this one's; `bubble_share` is all idle device time, waiting for other
/// pipelines included. Speedups compare equal batches: where policies train different tokens (one
/// that delays data), the ratio of tokens_per_second says more. A policy that is infeasible has no
/// numbers, its reason under `infeasible` and a note; then the table has a column `outcome`.
Report compare_report(const std::vector<PolicyRun>& runs, const CompareContext& context);

}  // namespace hydraulis
