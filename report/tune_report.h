#pragma once

#include "report/notes.h"
#include "report/report.h"
#include "sim/tune.h"

namespace hydraulis {

struct TuneContext {
  Notes notes;
  TuneOptions options;
  std::uint64_t seed = 0;  ///< of the iterations searched
  double memory_limit_bytes = 0;
  double wall_seconds = 0;    ///< measured
  bool reproducible = false;  ///< leave measured times out
};

/// `tune`: JSON
///   {winner{strategies[text], optimizer_layout, max_tokens, tokens_per_batch,
///           search_tokens_per_second, tokens_per_second, mean_ms, p95_ms, mfu, bubble_share,
///           memory_headroom_gb},
///    frontier[{strategies, max_tokens, search_tokens_per_second, tokens_per_second,
///              memory_headroom_gb, winner, set[text]}],
///    against[{plan, mean_ms, tokens_per_second, gain, gain_low, gain_high, faster_iterations}],
///    time[{plan, compute_ms, communication_ms, bubble_ms, waiting_ms, unused_ms, mean_ms}],
///    budgets[{tokens_per_batch, search_tokens_per_second, tokens_per_second,
///             start_tokens_per_second, gain, gain_low, gain_high, strategies}],
///    tried[{choice, tokens_per_second, against_winner, iterations}],
///    rounds[{tokens_per_batch, step, candidates, kept, iterations, tokens_per_second}],
///    search{iterations, seed, held_out_iterations, held_out_seed, optimizer_layouts[text],
///           max_tokens[…], simulated_iterations, wall_seconds}, notes[…]}
/// Throughputs without "search_" are over held-out iterations. `against` begins with the starting
/// plan; gains are of the winner's tokens/s, with their 95 % confidence interval. As CSV: the
/// frontier.
Report tune_report(const TuneResult& result, const TuneContext& context);

}  // namespace hydraulis
