// What other choices of execution would make of a plan.
#include <algorithm>

#include "base/error.h"
#include "planner/policy.h"
#include "sim/parallel.h"
#include "sim/tune.h"
#include "sim/tune_select.h"

namespace hydraulis {
namespace {

struct Way {
  std::string name;
  ScheduleChoice schedule;
  bool longest_first;  ///< instead of in the order that is searched
};

/// Those that are always tried, and what else may win.
std::vector<Way> ways(const std::vector<ScheduleChoice>& may_win) {
  std::vector<Way> result = {{"1F1B, longest micro-batch first", {}, true}};
  std::vector<ScheduleChoice> schedules = {{Schedule::gpipe},
                                           {Schedule::interleaved, 2},
                                           {Schedule::zero_bubble_h1},
                                           {Schedule::zero_bubble},
                                           {Schedule::unequal}};
  for (const ScheduleChoice& choice : may_win) {
    if (choice != ScheduleChoice{} && std::ranges::find(schedules, choice) == schedules.end()) {
      schedules.push_back(choice);
    }
  }
  for (const ScheduleChoice& choice : schedules) {
    result.push_back({to_string(choice), choice, false});
  }
  return result;
}

constexpr double kWorthASchedule = 1e-3;  ///< gain below which 1F1B stays

/// Seconds of one iteration as planned and in each way; 0: does not fit the memory.
struct Times {
  double planned = 0;
  std::vector<double> ways;
  std::uint64_t tokens = 0;
};

BatchPlan longest_first(BatchPlan plan, const CostModel& model) {
  for (PipelinePlan& pipeline : plan.pipelines) {
    const PipelineCost cost = make_pipeline_cost(model, pipeline.scheme);
    std::stable_sort(pipeline.micro_batches.begin(), pipeline.micro_batches.end(),
                     [&cost](const MicroBatch& a, const MicroBatch& b) {
                       return cost.stage_seconds(0, a) > cost.stage_seconds(0, b);
                     });
  }
  return plan;
}

}  // namespace

std::vector<TuneVariant> try_variants(const TunePlan& plan, const TuneProblem& problem,
                                      const std::vector<Batch>& batches,
                                      const std::vector<ScheduleChoice>& may_win, int threads) {
  std::vector<std::vector<Sequence>> sequences;
  for (const Batch& batch : batches) sequences.push_back(sequences_of(batch));
  TuneTable table(ground_of(problem, plan.set.optimizer, plan.max_tokens), sequences, threads);
  std::vector<int> set;
  for (const Strategy& strategy : plan.set.strategies) set.push_back(table.add(strategy));
  table.settle(set, batches.size());
  const CostModel& model = table.ground().model;
  const std::vector<Way> tried = ways(may_win);
  std::vector<Times> times(batches.size());
  for_each_index(batches.size(), threads, [&](std::size_t b) {
    const int chosen = chosen_strategy(table, set, b);
    if (chosen < 0) return;
    const BatchPlan planned = table.plan(chosen, b);
    times[b].planned = table.cell(chosen, b).simulated;
    IterationOptions how;
    how.costing.no_communication = problem.no_communication;
    how.costing.network = problem.network;
    how.costing.collectives = problem.collectives;
    how.count_out_of_memory = true;  // under the published model too
    times[b].tokens = batches[b].tokens();
    for (const Way& way : tried) {
      double seconds = 0;
      how.lowering = way.schedule;
      how.order_for_schedule = !way.longest_first;
      try {
        const SimulatedIteration one = simulate_iteration(
            way.longest_first ? longest_first(planned, model) : planned, model, how);
        if (!one.result.out_of_memory) seconds = one.result.time_seconds;
      } catch (const InfeasibleError&) {
        seconds = 0;
      } catch (const InputError&) {
        seconds = 0;  // a stage with fewer layers than runs
      }
      times[b].ways.push_back(seconds);
    }
  });
  std::vector<TuneVariant> variants;
  for (std::size_t w = 0; w < tried.size(); ++w) {
    TuneVariant variant;
    variant.name = tried[w].name;
    variant.schedule = tried[w].schedule;
    variant.may_win =
        !tried[w].longest_first && std::ranges::find(may_win, variant.schedule) != may_win.end();
    double seconds = 0;
    double planned = 0;
    double tokens = 0;
    for (const Times& one : times) {
      if (one.ways.empty() || !(one.ways[w] > 0)) continue;
      ++variant.iterations;
      seconds += one.ways[w];
      planned += one.planned;
      tokens += static_cast<double>(one.tokens);
    }
    if (seconds > 0) {
      variant.tokens_per_second = tokens / seconds;
      variant.against_winner = planned / seconds - 1;
    }
    variants.push_back(std::move(variant));
  }
  return variants;
}

ScheduleChoice best_schedule(const std::vector<TuneVariant>& variants, std::uint64_t batches) {
  ScheduleChoice best;
  double gain = kWorthASchedule;
  for (const TuneVariant& variant : variants) {
    if (!variant.may_win || variant.iterations < batches || variant.against_winner <= gain)
      continue;
    gain = variant.against_winner;
    best = variant.schedule;
  }
  return best;
}

}  // namespace hydraulis
