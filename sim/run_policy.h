#pragma once

#include <span>
#include <string>
#include <vector>

#include "planner/policy.h"
#include "sim/iterations.h"

namespace hydraulis {

/// The first `count` batches of a trace, and what the sampler did to long sequences on the way.
struct SampledBatches {
  std::vector<Batch> batches;
  OverContextCounts over_context;
};

SampledBatches sample_batches(const LengthTrace& trace, const SamplerOptions& options,
                              std::uint64_t count);

/// A policy's plans for a run of batches.
struct PlannedRun {
  std::vector<BatchPlan> plans;
  std::vector<Strategy> strategies;
  CostModel model;
  std::string remark;
};

/// Plans every batch with the named policy. Progress goes to standard error on a terminal.
PlannedRun plan_run(const std::string& policy, const PolicySetup& setup,
                    std::span<const Batch> batches);

}  // namespace hydraulis
