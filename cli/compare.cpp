// `hydraulis compare`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/progress.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planning.h"
#include "report/compare_report.h"
#include "traces/length_trace.h"

namespace hydraulis {
namespace {

struct Options {
  CommonOptions common;
  std::string plan;
};

void run(Options& options, const CLI::App& command) {
  CommonOptions& common = options.common;
  refuse_same_file({{"-o", common.output}}, {{"--plan", options.plan}, {"--trace", common.trace}});
  const LengthTrace trace = load_trace(common.trace, common.trace_format);
  const PlanResult plan = plan_for_run(command, options.plan, common, trace);
  const BatchRun batches = batch_run(common, trace);
  const BatchSurvey surveyed = survey(batches);
  const PolicySetup setup = policy_setup(plan, common, surveyed);
  if (common.policies.empty()) {
    for (const PolicyInfo& policy : policies()) common.policies.emplace_back(policy.name);
  }
  PolicyRunOptions how;
  how.keep_iterations = false;
  how.iteration.threads = static_cast<int>(common.threads);
  how.iteration.costing.no_communication = common.no_communication;
  use_schedule(common, how.iteration);
  std::vector<PolicyRun> runs;
  for (const std::string& name : common.policies) {
    Progress progress("simulating " + name, common.iterations, "iterations");
    how.iteration.on_progress = [&progress](std::size_t done) { progress.update(done); };
    const SimulatedRun run = run_policy(name, setup, batches, how);
    runs.push_back({name, run.result.summary, run.remark, run.strategies});
  }
  CompareContext context;
  context.devices = plan.model.cluster.devices();
  const SystemChoice choice = system_choice(command, !options.plan.empty());
  context.notes = run_notes(plan, choice, common, surveyed, how.iteration.costing);
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
                         Has::seed | Has::threads | Has::format | Has::output | Has::verbose);
  defaults_from_plan(*command, false);
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
