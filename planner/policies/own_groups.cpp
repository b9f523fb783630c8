#include "planner/policies/own_groups.h"

#include <algorithm>

#include "base/error.h"
#include "planner/schedule.h"

namespace hydraulis {

const PipelineCost& PipelineCostTable::of(const Scheme& scheme) {
  const auto found = costs_.find(scheme);
  if (found != costs_.end()) return found->second;
  return costs_.emplace(scheme, make_pipeline_cost(model_, scheme, cap_)).first->second;
}

void add_sequence(MicroBatch& micro_batch, const Sequence& sequence, const PipelineCost& pipeline) {
  micro_batch.sequence_ids.push_back(sequence.id);
  micro_batch.lengths.push_back(sequence.length);
  micro_batch.padding +=
      static_cast<std::uint64_t>(pipeline.padded(sequence.length)) - sequence.length;
}

std::vector<Sequence> longest_first(std::span<const Sequence> sequences) {
  std::vector<Sequence> sorted(sequences.begin(), sequences.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Sequence& x, const Sequence& y) { return x.length > y.length; });
  return sorted;
}

void expect_at_most(std::span<const Sequence> sequences, std::int64_t tokens,
                    const std::string& holder) {
  for (const Sequence& sequence : sequences) {
    if (sequence.length <= tokens) continue;
    throw InfeasibleError("infeasible: sequence {} has {} tokens, {} more than the {} of {}",
                          sequence.id, sequence.length, sequence.length - tokens, tokens, holder);
  }
}

void fill_times(BatchPlan& plan, const CostModel& model, PipelineCostTable& costs) {
  plan.makespan_seconds = 0;
  for (auto first = plan.pipelines.begin(); first != plan.pipelines.end();) {
    const auto last = std::find_if(first, plan.pipelines.end(), [&](const PipelinePlan& pipeline) {
      return pipeline.phase != first->phase;
    });
    double slowest = 0;
    std::vector<double> steps;
    for (; first != last; ++first) {
      const PipelineCost& cost = costs.of(first->scheme);
      first->time_seconds = pipeline_makespan(cost, first->micro_batches);
      slowest = std::max(slowest, first->time_seconds);
      steps.resize(std::max(steps.size(), first->micro_batches.size()));
      for (std::size_t i = 0; i < first->micro_batches.size(); ++i) {
        steps[i] = std::max(steps[i], cost.stage_seconds(0, first->micro_batches[i]));
      }
    }
    if (model.sharding == ParameterSharding::sharded) {
      for (const double step : steps) plan.makespan_seconds += step;
    } else {
      plan.makespan_seconds += slowest;
    }
  }
}

BatchPlan OwnGroups::plan(std::span<const Batch> window) {
  const auto start = std::chrono::steady_clock::now();
  BatchPlan plan = group(window);
  fill_times(plan, model_, costs_);
  Strategy strategy;
  for (const PipelinePlan& pipeline : plan.pipelines) {
    if (pipeline.phase + 1 == plan.phases()) strategy.push_back(pipeline.scheme);
  }
  const auto known = std::find(strategies_.begin(), strategies_.end(), strategy);
  plan.strategy = static_cast<int>(known - strategies_.begin());
  if (known == strategies_.end()) strategies_.push_back(std::move(strategy));
  plan.planning_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return plan;
}

}  // namespace hydraulis
