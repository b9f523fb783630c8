#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/notes.h"
#include "report/report.h"
#include "report/token_cost.h"
#include "sim/goodput_study.h"
#include "sim/iterations.h"

namespace hydraulis {

/// A cluster that a job runs on, whole or shrunk.
struct ClusterRate {
  int nodes = 0;
  double mean_seconds = 0;  ///< of an iteration
  double tokens_per_second = 0;
};

struct GoodputContext {
  double days = 0;
  int replications = 0;
  std::vector<ClusterRate> clusters;  ///< the whole one first
  /// The whole cluster's rate without jitter, stragglers and slow links, where there are any.
  std::optional<double> steady_tokens_per_second = {};
  double checkpoint_bytes = 0;
  bool interval_given = false;
  std::optional<IntervalSearch> search = {};
  DeviceRates rates = {};  ///< of all devices, spare ones included
  Notes notes;
  bool reproducible = false;
  double wall_seconds = 0;  ///< measured: what the replications took
};

/// `goodput`: JSON {goodput, goodput_half_width, worst_goodput, tokens_per_second,
/// tokens_per_second_half_width, fault_free_tokens_per_second, steady_tokens_per_second (null
/// without variance), days, replications, wall_time{useful, checkpoint, lost, recovery, degraded,
/// waiting: {share, half_width}}, failures_per_run, checkpoints_per_run, job_mtbf_seconds (null
/// without failures), checkpoint{bytes, write_seconds, read_seconds, stop_seconds,
/// interval_seconds, interval_iterations, interval_given}, intervals{young_seconds, daly_seconds,
/// found_seconds, tries[{interval_seconds, goodput, half_width}]} (null where not sought),
/// clusters[{nodes, mean_ms, tokens_per_second}], device_hours_per_billion_tokens,
/// kilowatt_hours_per_billion_tokens, cost_per_billion_tokens, events,
/// simulated_days_per_second (left out when reproducible), notes[...]}. CSV: the wall time's table.
/// Half-widths are of 95 % confidence intervals.
Report goodput_report(const TrainingJob& job, const Goodput& result, const GoodputContext& context);

}  // namespace hydraulis
