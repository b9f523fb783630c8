#include "sim/run_policy.h"

#include "base/progress.h"

namespace hydraulis {

SampledBatches sample_batches(const LengthTrace& trace, const SamplerOptions& options,
                              std::uint64_t count) {
  SampledBatches sampled;
  Sampler sampler(trace, options);
  sampled.batches.reserve(static_cast<std::size_t>(count));
  for (std::uint64_t i = 0; i < count; ++i) sampled.batches.push_back(sampler.next());
  sampled.over_context = sampler.position().counts;
  return sampled;
}

PlannedRun plan_run(const std::string& policy, const PolicySetup& setup,
                    std::span<const Batch> batches) {
  const auto planner = make_policy(policy, setup);
  PlannedRun run;
  run.model = planner->cost_model();
  run.strategies = planner->strategies();
  run.remark = planner->remark();
  if (planner->reorders_data()) run.remark += "; trains sequences in other iterations than drawn";
  Progress progress("planning " + policy, batches.size(), "batches");
  run.plans.reserve(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    run.plans.push_back(planner->plan(batches.subspan(i)));
    progress.update(i + 1);
  }
  return run;
}

}  // namespace hydraulis
