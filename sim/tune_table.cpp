#include "sim/tune_table.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "planner/bounds.h"
#include "planner/thin_set.h"
#include "sim/parallel.h"

namespace hydraulis {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// A strategy whose bound is so far above the best plan of a batch is not tried on it.
constexpr double kFarFromBest = 1.05;
/// Nor is one planned in full whose quick plan is so far above: local search would not make up.
constexpr double kNearBest = 1.02;
/// What is not tried is taken to be this much worse than its bound, as thin_set() does: the guess
/// may serve a set that has nothing better, and must not win.
constexpr double kNotLookedAt = 2;

void add_to(PreparedStrategies& prepared, const Strategy& strategy, const CostModel& model) {
  prepared.strategies.push_back(strategy);
  prepared.pipelines.push_back(make_pipeline_costs(model, strategy, prepared.options.max_tokens));
  prepared.traffic_seconds.push_back(counted_traffic_seconds(strategy, model, prepared.options));
}

/// Highest memory of any device in an iteration: the replay's mark under the composed model, the
/// published formula at the longest micro-batch under the published one.
double iteration_memory_bytes(const BatchPlan& plan, const CostModel& model,
                              const IterationResult& result) {
  if (model.memory == MemoryModel::composed) return result.memory_bytes;
  double most = 0;
  for (const PipelinePlan& pipeline : plan.pipelines) {
    std::uint64_t longest = 0;
    for (const MicroBatch& batch : pipeline.micro_batches) {
      longest = std::max(longest, batch.tokens() + batch.padding);
    }
    most = std::max(most, required_bytes(model, pipeline.scheme, static_cast<double>(longest)));
  }
  return most;
}

}  // namespace

TuneTable::TuneTable(TuneGround ground, std::span<const std::vector<Sequence>> batches, int threads)
    : ground_(std::move(ground)), batches_(batches), threads_(threads) {
  full_.options = ground_.assignment;
  quick_.options = without_local_search(ground_.assignment);
  best_.assign(batches.size(), kNever);
}

int TuneTable::add(const Strategy& strategy) {
  Strategy key = strategy;
  std::sort(key.begin(), key.end());
  const auto [at, is_new] = known_.try_emplace(key, static_cast<int>(strategies()));
  if (is_new) {
    add_to(full_, strategy, ground_.model);
    quick_.strategies.push_back(strategy);
    quick_.pipelines.push_back(full_.pipelines.back());
    quick_.traffic_seconds.push_back(full_.traffic_seconds.back());
    cells_.emplace_back(batches_.size());
  }
  return at->second;
}

bool TuneTable::holds(int index, std::int64_t tokens) const {
  const auto& pipelines = full_.pipelines[static_cast<std::size_t>(index)];
  return std::any_of(pipelines.begin(), pipelines.end(), [tokens](const PipelineCost& pipeline) {
    return pipeline.padded(tokens) <= pipeline.max_tokens;
  });
}

bool TuneTable::fill(int strategy, std::size_t batch, TuneEffort effort) {
  TuneCell& cell = cells_[static_cast<std::size_t>(strategy)][batch];
  if (cell.looked_at && cell.effort >= effort) return false;
  const PreparedStrategies& prepared = effort == TuneEffort::full ? full_ : quick_;
  const double traffic = prepared.traffic_seconds[static_cast<std::size_t>(strategy)];
  const BatchPlan plan = planned(prepared, strategy, batch);
  cell.effort = effort;
  cell.looked_at = true;
  cell.planned = plan.makespan_seconds + traffic;
  try {
    const SimulatedIteration one = simulate_iteration(plan, ground_.model, ground_.iteration);
    cell.result = one.result;
    cell.time = where_time_went(one.program, one.replay);
    cell.simulated = one.result.time_seconds;
    cell.memory_bytes = iteration_memory_bytes(plan, ground_.model, one.result);
  } catch (const InfeasibleError&) {
    cell.simulated = kNever;
  }
  return true;
}

BatchPlan TuneTable::planned(const PreparedStrategies& prepared, int strategy,
                             std::size_t batch) const {
  // As assign() does it, to the bit: what it would choose must be what this table says.
  const double traffic = prepared.traffic_seconds[static_cast<std::size_t>(strategy)];
  return assign_on(batches_[batch], prepared, strategy, cell(strategy, batch).bound - traffic);
}

BatchPlan TuneTable::plan(int strategy, std::size_t batch) const {
  return planned(full_, strategy, batch);
}

void TuneTable::bound(int strategy, std::size_t batch) {
  TuneCell& cell = cells_[static_cast<std::size_t>(strategy)][batch];
  if (cell.effort != TuneEffort::none) return;
  cell.bound = makespan_lower_bound(full_.pipelines[static_cast<std::size_t>(strategy)],
                                    batches_[batch], BoundEffort::quick) +
               full_.traffic_seconds[static_cast<std::size_t>(strategy)];
  cell.planned = cell.simulated = cell.bound * kNotLookedAt;
  cell.effort = TuneEffort::quick;
}

void TuneTable::evaluate(std::span<const int> strategies, std::size_t batches, TuneEffort effort) {
  batches = std::min(batches, batches_.size());
  std::vector<std::uint64_t> filled(batches, 0);
  for_each_index(batches, threads_, [&](std::size_t b) {
    std::vector<std::pair<double, int>> order;
    for (const int s : strategies) {
      bound(s, b);
      if (std::isfinite(cell(s, b).bound)) order.emplace_back(cell(s, b).bound, s);
    }
    std::sort(order.begin(), order.end());
    double& best = best_[b];
    for (const auto& [bound, s] : order) {
      if (bound > kFarFromBest * best) break;
      filled[b] += fill(s, b, TuneEffort::quick) ? 1 : 0;
      best = std::min(best, cell(s, b).planned);
    }
    if (effort != TuneEffort::full) return;
    for (const auto& [bound, s] : order) {
      const TuneCell& at = cell(s, b);
      if (!at.looked_at || at.planned > kNearBest * best) continue;
      filled[b] += fill(s, b, TuneEffort::full) ? 1 : 0;
      best = std::min(best, at.planned);
    }
  });
  for (const std::uint64_t count : filled) simulated_ += count;
}

void TuneTable::settle(std::span<const int> set, std::size_t batches) {
  batches = std::min(batches, batches_.size());
  std::vector<std::uint64_t> filled(batches, 0);
  for_each_index(batches, threads_, [&](std::size_t b) {
    for (const int s : set) bound(s, b);
    while (true) {
      // The most hopeful strategy that is not exact; done when it cannot beat the exact ones.
      int hopeful = -1;
      double bound = kNever;
      double least = kNever;
      for (const int s : set) {
        const TuneCell& at = cell(s, b);
        if (exact(s, b)) {
          least = std::min(least, at.planned);
        } else if (at.bound < bound) {
          hopeful = s;
          bound = at.bound;
        }
      }
      if (hopeful < 0 || bound >= least) return;
      filled[b] += fill(hopeful, b, TuneEffort::full) ? 1 : 0;
    }
  });
  for (const std::uint64_t count : filled) simulated_ += count;
}

}  // namespace hydraulis
