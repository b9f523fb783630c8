#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/strategy.h"
#include "report/notes.h"
#include "report/report.h"
#include "report/token_cost.h"
#include "sim/critical_path.h"
#include "sim/iterations.h"
#include "sim/memory_timeline.h"

namespace hydraulis {

/// What the reports of simulated runs need to know beside the results.
struct RunContext {
  std::vector<Strategy> strategies;  ///< names the strategies chosen; may be empty
  Notes notes;                       ///< assumptions, origins, what was truncated or dropped
  bool reproducible = false;         ///< leave measured times out
  int devices = 0;                   ///< of the cluster
  DeviceRates rates = {};            ///< what its time is worth
  bool counts_out_of_memory = false;
  /// Where most memory is held in the same iteration as the path below; composed model alone.
  std::optional<MemoryPeak> memory_peak = {};
  std::vector<ResourceShare> critical_path = {};  ///< of one iteration; may be empty
  std::uint64_t critical_iteration = 0;           ///< which
};

/// `simulate`: JSON {iterations[{iteration, time_ms, strategy, tokens, bubble_share, mfu}],
/// mean_ms, p50_ms, p95_ms, p99_ms, tokens_per_second, mfu, bubble_share, exposed_communication_ms,
/// memory_bytes, events, losses{work, padding, optimizer, exposed_communication, bubble, straggler,
/// unused: shares of the device time}, out_of_memory_share (null unless counted),
/// critical_path{iteration, resources[{resource, path_ms, gain_twice_as_fast, gain_if_free}]},
/// device_hours_per_billion_tokens, kilowatt_hours_per_billion_tokens, cost_per_billion_tokens
/// (null where not known), memory_peak{stage (global), time_ms, bytes{optimizer, parameters,
/// gradients, activations, logits, buffers, constant}, total_bytes} (null as memory_bytes),
/// wall_seconds, strategies[...], unused_devices[one number a strategy], notes[...]}.
/// `memory_bytes` is null under the published memory model, which keeps no account of it;
/// `wall_seconds` is left out when reproducible. CSV: one row an iteration. Text: a summary, then
/// how often each strategy was chosen and, in the order of the iterations, which. The report reads
/// `run` as it is written.
Report run_report(const RunResult& run, const RunContext& context);
Report run_report(RunResult&& run, const RunContext& context) = delete;

}  // namespace hydraulis
