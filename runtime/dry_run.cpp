#include "runtime/dry_run.h"

#include <algorithm>

#include "costmodel/host_states.h"
#include "planner/program/lower.h"
#include "runtime/memory_estimate.h"
#include "runtime/run_setup.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kBatches = 20;

}  // namespace

DryRun dry_run(const RunConfig& config) {
  const RunSetup setup = load_run_setup(config);
  DryRun result;
  result.steps = config.steps;
  result.devices = setup.model.cluster.devices();
  result.parameters = parameter_count(setup.decoder.shape);
  result.memory_limit_bytes = memory_limit_bytes(config, setup);
  TrainingData data(setup.data);
  result.notes = data.notes();
  const std::vector<Batch> tuning = tuning_batches(config, setup);
  const std::unique_ptr<Policy> policy = make_policy(config.policy, policy_setup(setup, tuning));
  CostModel model = setup.model;
  model.optimizer = policy->cost_model().optimizer;
  if (!policy->remark().empty()) result.notes.push_back(policy->remark());
  const auto context = static_cast<double>(setup.data.sampling.context);
  const std::string beyond = beyond_measurements(setup.model, context, context);
  if (!beyond.empty()) result.notes.push_back(beyond);
  if (setup.model.states == OptimizerStates::host) {
    result.host_bytes = static_cast<std::int64_t>(host_state_bytes(owned_elements(model)));
    result.notes.push_back(host_step_text(setup.model.cluster));
  }
  result.batches = std::min(kBatches, config.steps);
  for (std::int64_t i = 0; i < result.batches; ++i) {
    const Batch batch = lengths_of(data.next());
    const BatchPlan plan = policy->plan(std::span(&batch, 1));
    const double seconds = predicted_seconds(plan, model);
    const auto count = static_cast<double>(result.batches);
    result.mean_tokens += static_cast<double>(batch.tokens()) / count;
    result.mean_seconds += seconds / count;
    result.most_seconds = std::max(result.most_seconds, seconds);
    const std::string name = strategy_text(plan);
    auto use = std::find_if(result.strategies.begin(), result.strategies.end(),
                            [&](const DryRun::Use& known) { return known.strategy == name; });
    if (use == result.strategies.end()) use = result.strategies.insert(use, {name, 0, {}});
    ++use->batches;
    const StageMemory memory = estimate_memory(model, lower(plan, model, setup.plan.schedule));
    if (memory.total() > use->fullest.total()) use->fullest = memory;
  }
  return result;
}

}  // namespace hydraulis
