// Plans run over batches, and how two runs compare.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "costmodel/node_groups.h"
#include "planner/policy.h"
#include "sim/tune.h"
#include "sim/tune_select.h"
#include "sim/tune_table.h"

namespace hydraulis {
namespace {

/// The 97.5 % quantile of Student's t with `freedom` degrees, by the Cornish-Fisher expansion
/// (Abramowitz and Stegun 26.7.5); within 1 % from 4 degrees on.
double student_quantile(double freedom) {
  constexpr double z = 1.959963984540054;
  const double z3 = z * z * z;
  const double z5 = z3 * z * z;
  const double z7 = z5 * z * z;
  return z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * freedom * freedom * freedom);
}

}  // namespace

TuneGround ground_of(const TuneProblem& problem, const OptimizerLayout& layout,
                     std::int64_t max_tokens, const ScheduleChoice& schedule) {
  TuneGround ground;
  ground.model = problem.model;
  ground.model.optimizer = layout;
  ground.assignment.max_tokens = max_tokens;
  ground.assignment.count_parameter_traffic = !problem.no_communication;
  ground.iteration.costing.no_communication = problem.no_communication;
  ground.iteration.costing.network = problem.network;
  ground.iteration.costing.collectives = problem.collectives;
  ground.iteration.lowering = schedule;
  ground.iteration.order_for_schedule = schedule != ScheduleChoice{};
  return ground;
}

HeldOutRun run_plan(const TunePlan& plan, const TuneProblem& problem,
                    const std::vector<Batch>& batches, int threads) {
  std::vector<std::vector<Sequence>> sequences;
  for (const Batch& batch : batches) sequences.push_back(sequences_of(batch));
  TuneTable table(ground_of(problem, plan.set.optimizer, plan.max_tokens, plan.schedule), sequences,
                  threads);
  std::vector<int> set;
  for (const Strategy& strategy : plan.set.strategies) set.push_back(table.add(strategy));
  table.settle(set, batches.size());
  const CostModel& model = table.ground().model;
  HeldOutRun run;
  RunTotals totals;
  for (std::size_t b = 0; b < batches.size(); ++b) {
    const int chosen = chosen_strategy(table, set, b);
    if (chosen < 0) {
      throw InfeasibleError(
          "infeasible: {}: no strategy of it holds the longest sequence of iteration {}, {} tokens",
          plan.name, b, *std::max_element(batches[b].lengths.begin(), batches[b].lengths.end()));
    }
    const TuneCell& cell = table.cell(chosen, b);
    if (!std::isfinite(cell.simulated)) {
      throw InfeasibleError("infeasible: {}: iteration {} runs out of memory", plan.name, b);
    }
    totals.add(cell.result);
    run.seconds.push_back(cell.result.time_seconds);
    run.tokens.push_back(cell.result.tokens);
    run.time += cell.time;
    run.memory_bytes = std::max(run.memory_bytes, cell.memory_bytes);
  }
  run.summary = totals.summary(model.cluster.devices(), mean_peak_flops(model.cluster));
  if (!batches.empty()) run.time = run.time.scaled(1.0 / static_cast<double>(batches.size()));
  return run;
}

PairedGain paired_gain(const HeldOutRun& run, const HeldOutRun& other) {
  PairedGain gain;
  const std::size_t count = std::min(run.seconds.size(), other.seconds.size());
  double sum = 0;
  double other_sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += run.seconds[i];
    other_sum += other.seconds[i];
    gain.faster += run.seconds[i] < other.seconds[i] ? 1 : 0;
  }
  if (!(sum > 0)) return gain;
  const double ratio = other_sum / sum;
  gain.mean = gain.low = gain.high = ratio - 1;
  if (count < 2) return gain;
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double off = other.seconds[i] - ratio * run.seconds[i];
    squares += off * off;
  }
  const auto n = static_cast<double>(count);
  const double error = std::sqrt(squares / (n - 1) / n) / (sum / n);
  const double margin = student_quantile(n - 1) * error;
  gain.low = gain.mean - margin;
  gain.high = gain.mean + margin;
  return gain;
}

}  // namespace hydraulis
