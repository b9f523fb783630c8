// `hydraulis compare`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/faults_option.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planning.h"
#include "report/compare_report.h"
#include "sim/results.h"
#include "traces/length_trace.h"

namespace hydraulis {
namespace {

struct Options {
  CommonOptions common;
  std::string plan;
  std::string results;
  std::uint64_t keep_iteration = 0;
  FaultsOptions faults;
};

/// The part of a results file's run that does not depend on what came of it.
ResultRun asked_for(const std::string& policy, const PlanResult& plan, const Options& options) {
  ResultRun result;
  result.settings = {{"plan", options.plan},
                     {"trace", options.common.trace},
                     {"policy", policy},
                     {"context", options.common.context},
                     {"iterations", options.common.iterations},
                     {"seed", options.common.seed}};
  result.policy = policy;
  result.model = plan.plan.model;
  result.profile = fmt::format("{} ({})", plan.model.profile.name, plan.model.profile.origin);
  result.analytic = plan.model.profile.analytic;
  result.devices = plan.model.cluster.devices();
  return result;
}

/// A policy's run as a results file keeps it.
ResultRun result_run(ResultRun result, SimulatedRun&& run, const Options& options,
                     const IterationOptions& how, const std::string& profile_file) {
  result.remark = run.remark;
  result.provenance = sources_json(sources_of(run.model, &how.costing, profile_file));
  result.summary = run.result.summary;
  result.iterations = std::move(run.result.iterations);
  for (const Strategy& strategy : run.strategies) result.strategies.push_back(to_string(strategy));
  if (run.kept_plan) {
    result.kept =
        keep_iteration(simulate_iteration(*run.kept_plan, run.model, how, options.keep_iteration),
                       run.model, static_cast<int>(options.keep_iteration));
  }
  return result;
}

/// "infeasible: memory: …" as it stands in a row that says so already.
std::string reason_of(const InfeasibleError& error) {
  const std::string message = error.what();
  const std::string_view prefix = "infeasible: ";
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

/// Refuses misspelt names before anything is simulated.
void check_names(const std::vector<std::string>& names) {
  for (const std::string& name : names) policy_info(name);
}

/// Exit code 3 with the reasons when no policy has a result.
void refuse_when_nothing_fits(const std::vector<PolicyRun>& runs) {
  if (std::ranges::any_of(runs, [](const PolicyRun& run) { return run.infeasible.empty(); }))
    return;
  if (runs.size() == 1) throw InfeasibleError("infeasible: {}", runs.front().infeasible);
  std::string reasons;
  for (const PolicyRun& run : runs) {
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", run.name, run.infeasible);
  }
  throw InfeasibleError("infeasible: none of the {} policies fits: {}", runs.size(), reasons);
}

void run(Options& options, const CLI::App& command) {
  CommonOptions& common = options.common;
  refuse_same_file(
      {{"-o", common.output}, {"--results", options.results}},
      {{"--plan", options.plan}, {"--trace", common.trace}, {"--faults", options.faults.path}});
  const LengthTrace trace = load_trace(common.trace, common.trace_format);
  Faults faults;
  const PlanResult plan =
      plan_under_faults(command, options.plan, common, trace, options.faults, faults);
  const BatchRun batches = batch_run(common, trace);
  const BatchSurvey surveyed = survey(batches);
  const PolicySetup setup = policy_setup(plan, common, surveyed);
  if (common.policies.empty()) {
    for (const PolicyInfo& policy : policies()) common.policies.emplace_back(policy.name);
  }
  check_names(common.policies);
  PolicyRunOptions how;
  how.iteration.variance = faults.variance;
  how.keep_iterations = !options.results.empty();
  if (how.keep_iterations) {
    if (options.keep_iteration >= common.iterations) {
      throw InputError("--keep-iteration: {}, expected 0 to {}", options.keep_iteration,
                       common.iterations - 1);
    }
    how.keep_plan = options.keep_iteration;
  }
  how.iteration.threads = static_cast<int>(common.threads);
  how.iteration.costing.no_communication = common.no_communication;
  how.iteration.costing.network = common.network;
  how.iteration.costing.collectives = common.collectives;
  use_schedule(common, how.iteration);
  std::vector<PolicyRun> runs;
  Results results;
  for (const std::string& name : common.policies) {
    Progress progress("simulating " + name, common.iterations, "iterations");
    how.iteration.on_progress = [&progress](std::size_t done) { progress.update(done); };
    ResultRun result = asked_for(name, plan, options);
    try {
      SimulatedRun run = run_policy(name, setup, batches, how);
      PolicyRun shown{name, run.result.summary, run.remark, run.strategies};
      shown.planning_seconds = run.planning_seconds;
      shown.most_planning_seconds = run.most_planning_seconds;
      runs.push_back(std::move(shown));
      if (!options.results.empty()) {
        result = result_run(std::move(result), std::move(run), options, how.iteration,
                            plan.plan.profile);
      }
    } catch (const InfeasibleError& error) {
      runs.push_back({name, {}, {}, {}, reason_of(error)});
      result.outcome = RunOutcome::infeasible;
      result.message = error.what();
    }
    if (!options.results.empty()) results.runs.push_back(std::move(result));
  }
  refuse_when_nothing_fits(runs);
  if (!options.results.empty()) {
    results.name = fmt::format("{} on {}, {}", plan.plan.model, plan.plan.cluster, common.trace);
    write_results(results, options.results);
  }
  CompareContext context;
  context.devices = plan.model.cluster.devices();
  context.rates = device_rates(common, plan.model.cluster);
  const SystemChoice choice = system_choice(command, !options.plan.empty());
  context.notes = run_notes(plan, choice, common, surveyed, how.iteration.costing);
  note_variance(faults.variance, plan.model.cluster, context.notes);
  context.reproducible = common.reproducible;
  emit(common, compare_report(runs, context));
}

}  // namespace

void add_compare_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("compare", "systems side by side on one trace and cluster");
  command->add_option("--plan", options->plan,
                      "plan file made by `hydraulis plan` [proposed from the trace]");
  add_common_options(*command, options->common,
                     Has::system | Has::trace | Has::batch | Has::context | Has::max_tokens |
                         Has::iterations | Has::policies | Has::communication | Has::schedule |
                         Has::overlap | Has::rates | Has::switching | Has::seed | Has::threads |
                         Has::format | Has::output | Has::verbose | Has::megatron);
  defaults_from_plan(*command, false);
  add_faults_options(*command, options->faults);
  CLI::Option* results =
      command
          ->add_option("--results", options->results,
                       "write every iteration too, for `hydraulis report` (HDF5)")
          ->check(not_empty());
  command
      ->add_option("--keep-iteration", options->keep_iteration,
                   "whose timeline and memory the results hold, from 0")
      ->check(whole_number(0, 10'000'000))
      ->needs(results)
      ->capture_default_str();
  std::string names;
  for (const PolicyInfo& policy : policies()) {
    names += fmt::format("  {:<18} {}\n", policy.name, policy.summary);
  }
  command->footer("Policies:\n" + names +
                  "Example:\n  hydraulis compare --policies static-pack,hydraulis --plan plan.json "
                  "--trace web-gpt2 --over-context truncate");
  command->callback([options, command] { run(*options, *command); });
}

}  // namespace hydraulis
