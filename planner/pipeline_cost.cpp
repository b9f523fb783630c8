#include "planner/pipeline_cost.h"

#include <algorithm>

#include "base/error.h"

namespace hydraulis {

double PipelineCost::stage_seconds(int stage, const MicroBatch& micro_batch) const {
  return stages[static_cast<std::size_t>(stage)].of(
      micro_batch.sum_squares(), static_cast<double>(micro_batch.tokens() + micro_batch.padding));
}

bool PipelineCost::uniform_stages() const {
  return std::all_of(stages.begin(), stages.end(), [this](const StageCost& cost) {
    return cost.a == slowest.a && cost.b == slowest.b && cost.c == slowest.c;
  });
}

PipelineCost make_pipeline_cost(const CostModel& model, const Scheme& scheme,
                                std::int64_t max_tokens_cap) {
  PipelineCost result;
  result.scheme = scheme;
  for (int stage = 0; stage < scheme.pp; ++stage) {
    const auto cost = stage_cost(model, scheme, stage);
    if (!cost) {
      throw InputError("profile '{}': has no times for the scheme {} of model '{}'",
                       model.profile.name, to_string(scheme), model.model.name);
    }
    result.stages.push_back(*cost);
    result.slowest.a = std::max(result.slowest.a, cost->a);
    result.slowest.b = std::max(result.slowest.b, cost->b);
    result.slowest.c = std::max(result.slowest.c, cost->c);
  }
  result.max_tokens = max_tokens(model, scheme);
  if (max_tokens_cap > 0) result.max_tokens = std::min(result.max_tokens, max_tokens_cap);
  return result;
}

std::vector<PipelineCost> make_pipeline_costs(const CostModel& model, const Strategy& strategy,
                                              std::int64_t max_tokens_cap) {
  std::vector<PipelineCost> costs;
  costs.reserve(strategy.size());
  for (const Scheme& scheme : strategy) {
    // Strategies repeat schemes; the memory search behind max_tokens is worth doing once.
    if (!costs.empty() && costs.back().scheme == scheme) {
      costs.push_back(costs.back());
    } else {
      costs.push_back(make_pipeline_cost(model, scheme, max_tokens_cap));
    }
  }
  return costs;
}

}  // namespace hydraulis
