#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/options.h"
#include "planner/plan_build.h"
#include "sim/run_policy.h"

namespace hydraulis {

/// The common options as a plan request; options not given keep what model and profile suggest.
PlanRequest plan_request(const CLI::App& command, const CommonOptions& options);

/// Reads a plan file and the cost model it names.
PlanResult load_plan(const std::string& path);

/// The plan that a simulating command works with: the file of --plan, or, where that is not given,
/// one proposed from the trace. Context and batch size are the plan's unless given; both are stored
/// back into `options`.
PlanResult plan_for_run(const CLI::App& command, const std::string& plan_path,
                        CommonOptions& options, const LengthTrace& trace);

/// What a policy needs, from a plan.
PolicySetup policy_setup(const PlanResult& result, const CommonOptions& options,
                         std::span<const Batch> batches);

/// Notes beside simulated results: what times contain, what was done to over-long sequences, and
/// batches of a single sequence longer than the token budget.
std::vector<std::string> run_notes(const PlanResult& result, const CommonOptions& options,
                                   const SampledBatches& sampled, const CostingOptions& costing);

}  // namespace hydraulis
