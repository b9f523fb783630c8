#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/options.h"
#include "planner/megatron_run.h"
#include "planner/plan_build.h"
#include "report/notes.h"
#include "report/token_cost.h"
#include "sim/run_policy.h"

namespace hydraulis {

/// Model, context, batch, cap on a micro-batch and schedule of the script of --megatron, stored
/// into `options` where the command line does not give them.
MegatronRun apply_megatron(const CLI::App& command, CommonOptions& options);

/// The common options as a plan request; options not given keep what model and profile suggest.
PlanRequest plan_request(const CLI::App& command, const CommonOptions& options);

/// Reads a plan file and the cost model it names. Context, batch size and the cap on a micro-batch
/// are the plan's unless the command line gives them; they are stored into `options`. Where the
/// plan's schemes are not what the cost model gives, a note says which of the two is used.
PlanResult load_plan(const CLI::App& command, const std::string& path, CommonOptions& options);

/// The plan that a simulating command works with: the file of --plan, or, where that is not given,
/// one proposed from the trace.
PlanResult plan_for_run(const CLI::App& command, const std::string& plan_path,
                        CommonOptions& options, const LengthTrace& trace);

/// Says in a command's help that defaults are the plan's; with `required`, that they always are.
void defaults_from_plan(CLI::App& command, bool required);

/// Which parts of the system a command line left to their defaults; none where a plan names them.
SystemChoice system_choice(const CLI::App& command, bool from_plan);

/// The run of batches that the options ask for. `trace` must outlive it.
BatchRun batch_run(const CommonOptions& options, const LengthTrace& trace);

/// What a policy needs, from a plan.
PolicySetup policy_setup(const PlanResult& result, const CommonOptions& options,
                         const BatchSurvey& survey);

/// Puts the schedule that the options (or the plan) ask for on simulated iterations.
void use_schedule(const CommonOptions& options, IterationOptions& iteration);

/// What device time is worth by the options, watts by the data sheet unless given.
DeviceRates device_rates(const CommonOptions& options, const ClusterSpec& cluster);

/// Notes beside simulated results: what times contain, what was done to over-long sequences, and
/// batches of a single sequence longer than the token budget.
Notes run_notes(const PlanResult& result, const SystemChoice& choice, const CommonOptions& options,
                const BatchSurvey& survey, const CostingOptions& costing);

}  // namespace hydraulis
