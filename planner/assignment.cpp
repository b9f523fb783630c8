#include "planner/assignment.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "planner/bounds.h"
#include "planner/exhaustive_dispatch.h"
#include "planner/exposed_traffic.h"
#include "planner/parameter_traffic.h"

namespace hydraulis {
namespace {

std::vector<Sequence> select(std::span<const Sequence> sequences, std::span<const int> indices) {
  std::vector<Sequence> result;
  result.reserve(indices.size());
  for (const int index : indices) result.push_back(sequences[static_cast<std::size_t>(index)]);
  return result;
}

/// Dispatching with the packing of every pipeline.
struct Assigned {
  std::vector<std::vector<int>> sequences;
  std::vector<PipelinePlan> plans;

  double makespan() const {
    double slowest = 0;
    for (const PipelinePlan& plan : plans) slowest = std::max(slowest, plan.time_seconds);
    return slowest;
  }
};

Assigned packed(std::span<const PipelineCost> pipelines, std::span<const Sequence> sequences,
                std::vector<std::vector<int>> dispatched, const PackingEffort& effort) {
  Assigned assigned;
  for (std::size_t k = 0; k < pipelines.size(); ++k) {
    assigned.plans.push_back(pack_pipeline(pipelines[k], select(sequences, dispatched[k]), effort));
  }
  assigned.sequences = std::move(dispatched);
  return assigned;
}

/// Packed ÷ estimated time by scheme, so that the next dispatch sees what packing really achieves.
std::vector<double> learn_corrections(std::span<const PipelineCost> pipelines,
                                      const Assigned& assigned, std::span<const double> before,
                                      std::span<const Sequence> sequences) {
  std::vector<double> corrections(pipelines.size(), 1.0);
  for (std::size_t k = 0; k < pipelines.size(); ++k) {
    double packed = 0;
    double estimated = 0;
    for (std::size_t j = 0; j < pipelines.size(); ++j) {
      if (!(pipelines[j].scheme == pipelines[k].scheme)) continue;
      packed += assigned.plans[j].time_seconds;
      double work = 0;
      std::vector<double> longest;
      std::int64_t tokens = 0;
      std::int64_t large = 0;
      for (const int index : assigned.sequences[j]) {
        const std::int64_t length = sequences[static_cast<std::size_t>(index)].length;
        const double seconds = pipelines[j].sequence_seconds(length);
        work += seconds;
        longest.push_back(seconds);
        tokens += pipelines[j].padded(length);
        large += 2 * pipelines[j].padded(length) > pipelines[j].max_tokens ? 1 : 0;
      }
      if (!assigned.sequences[j].empty()) {
        std::sort(longest.rbegin(), longest.rend());
        longest.resize(std::min<std::size_t>(longest.size(), 3));
        estimated += estimate_pipeline_seconds(pipelines[j], work, tokens, longest, large);
      }
    }
    corrections[k] = estimated > 0 ? packed / estimated : before[k];
  }
  return corrections;
}

/// Moves and swaps judged by real packing, from the slowest pipeline to faster ones.
void repack(std::span<const PipelineCost> pipelines, std::span<const Sequence> sequences,
            const PackingEffort& effort, int repacks, double good_enough, Assigned& assigned) {
  constexpr int kStagedCost = 4;
  int work = kStagedCost * repacks;
  const auto pack = [&](std::size_t k, const std::vector<int>& indices) {
    work -= pipelines[k].scheme.pp > 1 ? kStagedCost : 1;
    return pack_pipeline(pipelines[k], select(sequences, indices), effort);
  };
  const auto fits = [&](std::size_t k, int index) {
    return pipelines[k].padded(sequences[static_cast<std::size_t>(index)].length) <=
           pipelines[k].max_tokens;
  };
  const auto seconds = [&](std::size_t k, int index) {
    return pipelines[k].sequence_seconds(sequences[static_cast<std::size_t>(index)].length);
  };
  // Gives `out` of pipeline `from` to pipeline `to` for `in` (-1: for nothing) if both then end
  // before `now`.
  const auto exchange = [&](std::size_t from, int out, std::size_t to, int in, double now) {
    std::vector<int> keeps = assigned.sequences[from];
    std::vector<int> gets = assigned.sequences[to];
    keeps.erase(std::find(keeps.begin(), keeps.end(), out));
    gets.push_back(out);
    if (in >= 0) {
      gets.erase(std::find(gets.begin(), gets.end(), in));
      keeps.push_back(in);
    }
    PipelinePlan to_plan = pack(to, gets);
    if (to_plan.time_seconds >= now * (1 - 1e-9)) return false;
    PipelinePlan from_plan = pack(from, keeps);
    if (from_plan.time_seconds >= now * (1 - 1e-9)) return false;
    assigned.sequences[from] = std::move(keeps);
    assigned.sequences[to] = std::move(gets);
    assigned.plans[from] = std::move(from_plan);
    assigned.plans[to] = std::move(to_plan);
    return true;
  };
  constexpr std::size_t kMostSteps = 5;
  while (work > 0) {
    std::size_t slowest = 0;
    std::vector<std::size_t> others;
    for (std::size_t k = 0; k < pipelines.size(); ++k) {
      if (assigned.plans[k].time_seconds > assigned.plans[slowest].time_seconds) slowest = k;
    }
    const double now = assigned.plans[slowest].time_seconds;
    if (now <= good_enough) return;
    for (std::size_t k = 0; k < pipelines.size(); ++k) {
      if (k != slowest && assigned.plans[k].time_seconds < now) others.push_back(k);
    }
    std::stable_sort(others.begin(), others.end(), [&](std::size_t x, std::size_t y) {
      return assigned.plans[x].time_seconds < assigned.plans[y].time_seconds;
    });
    bool improved = false;
    for (std::size_t at = 0; at < others.size() && at < 4 && !improved && work > 0; ++at) {
      const std::size_t other = others[at];
      const double gap = now - assigned.plans[other].time_seconds;
      // Moves and swaps of whose time the other takes closest to half the gap.
      struct Step {
        int out;
        int in;
        double off;
      };
      std::vector<Step> steps;
      for (const int out : assigned.sequences[slowest]) {
        if (!fits(other, out)) continue;
        const double gains = seconds(other, out);
        if (gains < gap) steps.push_back({out, -1, std::abs(gains - gap / 2)});
        for (const int in : assigned.sequences[other]) {
          const double takes = gains - seconds(other, in);
          if (takes <= 0 || takes >= gap || !fits(slowest, in)) continue;
          steps.push_back({out, in, std::abs(takes - gap / 2)});
        }
      }
      const std::size_t most = std::min<std::size_t>(steps.size(), kMostSteps);
      std::partial_sort(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(most),
                        steps.end(), [](const Step& x, const Step& y) {
                          return std::tie(x.off, x.out, x.in) < std::tie(y.off, y.out, y.in);
                        });
      for (std::size_t i = 0; i < most && work > 0 && !improved; ++i) {
        improved = exchange(slowest, steps[i].out, other, steps[i].in, now);
      }
    }
    if (!improved) return;
  }
}

std::int64_t longest_that_fits(const std::vector<PipelineCost>& pipelines) {
  std::int64_t longest = 0;
  for (const PipelineCost& pipeline : pipelines) {
    const std::int64_t unit = pipeline.padded(1);
    longest = std::max(longest, pipeline.max_tokens / unit * unit);
  }
  return longest;
}

}  // namespace

double counted_traffic_seconds(const Strategy& strategy, const CostModel& model,
                               const AssignmentOptions& options) {
  if (!options.count_parameter_traffic) return 0;
  return options.traffic_overlaps ? exposed_traffic_seconds(strategy, model)
                                  : parameter_traffic_seconds(strategy, model);
}

PreparedStrategies prepare(const StrategySet& set, const CostModel& model,
                           const AssignmentOptions& options) {
  PreparedStrategies prepared;
  prepared.strategies = set.strategies;
  prepared.options = options;
  for (const Strategy& strategy : set.strategies) {
    prepared.pipelines.push_back(make_pipeline_costs(model, strategy, options.max_tokens));
    prepared.traffic_seconds.push_back(counted_traffic_seconds(strategy, model, options));
  }
  return prepared;
}

BatchPlan assign_on(std::span<const Sequence> sequences, const PreparedStrategies& prepared,
                    int strategy, double lower_bound) {
  const auto& pipelines = prepared.pipelines[static_cast<std::size_t>(strategy)];
  const AssignmentOptions& options = prepared.options;
  const double good_enough = lower_bound * options.dispatch.good_enough;
  std::vector<double> corrections(pipelines.size(), 1.0);
  Assigned best;
  for (int round = 0; round < options.rounds; ++round) {
    const Dispatching dispatching =
        dispatch(pipelines, sequences, corrections, lower_bound, options.dispatch);
    Assigned assigned = packed(pipelines, sequences, dispatching.sequences, options.packing);
    const double makespan = assigned.makespan();
    std::vector<double> learned = learn_corrections(pipelines, assigned, corrections, sequences);
    const bool settled = learned == corrections;
    corrections = std::move(learned);
    if (best.plans.empty() || makespan < best.makespan()) best = std::move(assigned);
    if (best.makespan() <= good_enough || settled) break;
  }
  repack(pipelines, sequences, options.packing, options.repacks, good_enough, best);
  if (best.makespan() > good_enough && few_enough_to_exhaust(pipelines, sequences.size())) {
    Assigned exhaustive =
        packed(pipelines, sequences, dispatch_exhaustively(pipelines, sequences, options.packing),
               options.packing);
    // As good is not enough: of equals the search leaves pipelines more even.
    if (exhaustive.makespan() < best.makespan() * (1 - 1e-9)) best = std::move(exhaustive);
  }
  BatchPlan plan;
  plan.strategy = strategy;
  plan.pipelines = std::move(best.plans);
  for (const PipelinePlan& pipeline : plan.pipelines) {
    plan.makespan_seconds = std::max(plan.makespan_seconds, pipeline.time_seconds);
  }
  plan.lower_bound_seconds = lower_bound;
  return plan;
}

BatchPlan assign(std::span<const Sequence> sequences, const PreparedStrategies& prepared) {
  const auto start = std::chrono::steady_clock::now();
  const int count = static_cast<int>(prepared.strategies.size());
  if (count == 0) throw InputError("the plan has no strategies");
  std::vector<double> bounds;  // makespan plus parameter traffic
  for (int i = 0; i < count; ++i) {
    bounds.push_back(makespan_lower_bound(prepared.pipelines[i], sequences, BoundEffort::quick) +
                     prepared.traffic_seconds[i]);
  }
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int x, int y) { return bounds[x] < bounds[y]; });
  if (!std::isfinite(bounds[order.front()])) {
    const Sequence& longest =
        *std::max_element(sequences.begin(), sequences.end(),
                          [](const Sequence& x, const Sequence& y) { return x.length < y.length; });
    std::int64_t fits = 0;
    for (const auto& pipelines : prepared.pipelines) {
      fits = std::max(fits, longest_that_fits(pipelines));
    }
    if (prepared.options.max_tokens > 0 && fits <= prepared.options.max_tokens &&
        longest.length > prepared.options.max_tokens) {
      throw InfeasibleError(
          "infeasible: --max-tokens {}: sequence {} has {} tokens, {} more than a micro-batch may "
          "have; raise the cap, or shorten sequences with --context {} and --over-context",
          prepared.options.max_tokens, longest.id, longest.length,
          longest.length - prepared.options.max_tokens, fits);
    }
    throw InfeasibleError(
        "infeasible: memory per micro-batch: sequence {} has {} tokens, the longest that any "
        "strategy of "
        "the plan holds is {}, {} fewer; lower the context to {} or plan for a longer one",
        longest.id, longest.length, fits, longest.length - fits, fits);
  }
  BatchPlan best;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (const int strategy : order) {
    const double traffic = prepared.traffic_seconds[strategy];
    if (!(bounds[strategy] < best_seconds)) break;
    BatchPlan plan = assign_on(sequences, prepared, strategy, bounds[strategy] - traffic);
    if (plan.makespan_seconds + traffic < best_seconds) {
      best_seconds = plan.makespan_seconds + traffic;
      best = std::move(plan);
    }
  }
  // Only strategies that might still beat the plan hold the set's bound down: tighten those.
  double set_bound = best_seconds;
  for (const int strategy : order) {
    const double traffic = prepared.traffic_seconds[strategy];
    if (bounds[strategy] >= set_bound && strategy != best.strategy) continue;
    bounds[strategy] =
        traffic + makespan_lower_bound(prepared.pipelines[strategy], sequences,
                                       BoundEffort::whole_numbers, best_seconds - traffic);
    set_bound = std::min(set_bound, bounds[strategy]);
  }
  const double traffic = prepared.traffic_seconds[best.strategy];
  best.lower_bound_seconds = std::min(bounds[best.strategy] - traffic, best.makespan_seconds);
  best.set_lower_bound_seconds = std::min(set_bound - traffic, best.makespan_seconds);
  best.planning_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return best;
}

}  // namespace hydraulis
