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
  const char* name;
  Schedule schedule;
  bool longest_first;
};

constexpr Way kWays[] = {{"1F1B, longest micro-batch first", Schedule::one_f_one_b, true},
                         {"GPipe", Schedule::gpipe, false},
                         {"GPipe, longest micro-batch first", Schedule::gpipe, true}};

/// Seconds of one iteration as planned and in each way; 0: does not fit the memory.
struct Times {
  double planned = 0;
  std::vector<double> ways;
  std::uint64_t tokens = 0;
};

/// GPipe keeps every micro-batch alive; the published memory model allows as many as stages. The
/// composed model is asked in the replay.
bool fits(const BatchPlan& plan, const CostModel& model, Schedule schedule) {
  if (schedule != Schedule::gpipe || model.memory == MemoryModel::composed) return true;
  return std::all_of(plan.pipelines.begin(), plan.pipelines.end(), [](const PipelinePlan& p) {
    return p.micro_batches.size() <= static_cast<std::size_t>(p.scheme.pp);
  });
}

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
                                      const std::vector<Batch>& batches, int threads) {
  std::vector<std::vector<Sequence>> sequences;
  for (const Batch& batch : batches) sequences.push_back(sequences_of(batch));
  TuneTable table(ground_of(problem, plan.set.optimizer, plan.max_tokens), sequences, threads);
  std::vector<int> set;
  for (const Strategy& strategy : plan.set.strategies) set.push_back(table.add(strategy));
  table.settle(set, batches.size());
  const CostModel& model = table.ground().model;
  std::vector<Times> times(batches.size());
  for_each_index(batches.size(), threads, [&](std::size_t b) {
    const int chosen = chosen_strategy(table, set, b);
    if (chosen < 0) return;
    const BatchPlan planned = table.plan(chosen, b);
    times[b].planned = table.cell(chosen, b).simulated;
    IterationOptions how;
    how.costing.no_communication = problem.no_communication;
    times[b].tokens = batches[b].tokens();
    for (const Way& way : kWays) {
      double seconds = 0;
      how.lowering.schedule = way.schedule;
      if (fits(planned, model, way.schedule)) {
        try {
          seconds = simulate_iteration(way.longest_first ? longest_first(planned, model) : planned,
                                       model, how)
                        .result.time_seconds;
        } catch (const InfeasibleError&) {
          seconds = 0;
        }
      }
      times[b].ways.push_back(seconds);
    }
  });
  std::vector<TuneVariant> variants;
  for (std::size_t w = 0; w < std::size(kWays); ++w) {
    TuneVariant variant;
    variant.name = kWays[w].name;
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

}  // namespace hydraulis
