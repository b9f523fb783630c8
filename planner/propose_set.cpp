#include "planner/propose_set.h"

#include <algorithm>

#include "base/error.h"
#include "planner/mixtures.h"
#include "planner/policies/homogeneous.h"
#include "planner/thin_set.h"

namespace hydraulis {
namespace {

/// Every strategy costs planning time in every iteration.
constexpr int kMostStrategies = 16;

double seconds_on(const StrategySet& set, const CostModel& model, std::span<const Batch> sample,
                  const AssignmentOptions& options) {
  AssignmentOptions quick = without_local_search(options);
  quick.count_parameter_traffic = true;
  const PreparedStrategies prepared = prepare(set, model, quick);
  double seconds = 0;
  for (const Batch& batch : sample) {
    const BatchPlan plan = assign(sequences_of(batch), prepared);
    seconds +=
        plan.makespan_seconds + prepared.traffic_seconds[static_cast<std::size_t>(plan.strategy)];
  }
  return seconds;
}

}  // namespace

std::vector<Batch> planning_sample(const LengthTrace& trace, std::uint64_t tokens_per_batch,
                                   std::uint64_t context, int devices) {
  SamplerOptions sampling;
  sampling.tokens_per_batch = tokens_per_batch;
  sampling.context = context;
  sampling.over_context = OverContext::truncate;
  Sampler sampler(trace, sampling);
  std::vector<Batch> sample;
  const int batches = std::clamp(1024 / devices, 4, 16);
  for (int i = 0; i < batches; ++i) sample.push_back(sampler.next());
  return sample;
}

ProposedSet propose_set(const LengthTrace& trace, const CostModel& model,
                        std::span<const SchemeOption> schemes, const ProposalOptions& options,
                        const AssignmentOptions& assignment, std::span<const Batch> sample,
                        bool every_layout) {
  Proposal proposal = propose(trace, model, options);
  ProposedSet result;
  result.set = std::move(proposal.set);
  result.dropped = std::move(proposal.dropped);
  result.seconds = proposal.seconds;
  result.proposed = result.set.strategies.size();
  if (sample.empty()) return result;
  std::int64_t shortest_reach = 0;
  for (const Batch& batch : sample) {
    const std::int64_t longest = *std::ranges::max_element(batch.lengths);
    if (shortest_reach == 0 || longest < shortest_reach) shortest_reach = longest;
  }
  const int devices = model.cluster.devices();
  // Over unlike nodes the proposal has its own.
  if (model.cluster.groups.empty()) {
    for (Strategy& strategy : mixtures(schemes, devices, shortest_reach)) {
      add_new(result.set.strategies, std::move(strategy));
    }
  }
  for (const SchemeOption& option : schemes) {
    if (!every_layout || option.max_tokens < 1 || devices % option.scheme.devices() != 0) continue;
    add_new(result.set.strategies,
            Strategy(static_cast<std::size_t>(devices / option.scheme.devices()), option.scheme));
  }
  result.proposed = result.set.strategies.size();
  result.set = thin_set(result.set, model, sample, assignment, options.context, kMostStrategies);
  result.sample_seconds = seconds_on(result.set, model, sample, assignment);
  return result;
}

std::optional<OptimizerLayout> best_homogeneous_optimizer(const CostModel& model,
                                                          const AssignmentOptions& assignment,
                                                          std::int64_t context,
                                                          std::span<const Batch> sample) {
  PolicySetup setup;
  setup.model = model;
  setup.context = context;
  setup.assignment = without_local_search(assignment);
  setup.assignment.count_parameter_traffic = true;
  setup.batches = sample;
  try {
    return best_homogeneous_layout(
               setup,
               [](std::span<const Sequence> sequences, const HomogeneousLayout& layout) {
                 return assign(sequences, layout.prepared);
               })
        .model.optimizer;
  } catch (const InfeasibleError&) {
    return {};
  }
}

}  // namespace hydraulis
