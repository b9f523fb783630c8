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
  const LengthTrace trace = load_trace(common.trace);
  const PlanResult plan = plan_for_run(command, options.plan, common, trace);
  const SampledBatches sampled = sample_batches(trace, sampler_options(common), common.iterations);
  const PolicySetup setup = policy_setup(plan, common, sampled.batches);
  if (common.policies.empty()) {
    for (const PolicyInfo& policy : policies()) common.policies.emplace_back(policy.name);
  }
  IterationOptions how;
  how.threads = static_cast<int>(common.threads);
  how.costing.no_communication = common.no_communication;
  std::vector<PolicyRun> runs;
  for (const std::string& name : common.policies) {
    const PlannedRun planned = plan_run(name, setup, sampled.batches);
    Progress progress("simulating " + name, planned.plans.size(), "iterations");
    how.on_progress = [&progress](std::size_t done) { progress.update(done); };
    runs.push_back({name, simulate(planned.plans, planned.model, how).summary, planned.remark});
  }
  CompareContext context;
  context.devices = plan.model.cluster.devices();
  context.notes = run_notes(plan, common, sampled, how.costing);
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
                         Has::iterations | Has::policies | Has::communication | Has::seed |
                         Has::threads | Has::format | Has::output);
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
