// `hydraulis simulate`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/faults_option.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planning.h"
#include "cli/timeline_output.h"
#include "report/run_report.h"
#include "traces/length_trace.h"

namespace hydraulis {
namespace {

constexpr double kMostScale = 1e6;

struct Options {
  CommonOptions common;
  std::string plan;
  std::string policy = "hydraulis";
  std::string timeline;
  std::string memory_timeline;
  std::uint64_t timeline_iteration = 0;
  double bandwidth_scale = 1;
  bool count_out_of_memory = false;
  FaultsOptions faults;
};

void run(Options& options, const CLI::App& command) {
  CommonOptions& common = options.common;
  check_timeline_name(options.timeline);
  refuse_same_file(
      {{"-o", common.output},
       {"--timeline", options.timeline},
       {"--memory-timeline", options.memory_timeline}},
      {{"--plan", options.plan}, {"--trace", common.trace}, {"--faults", options.faults.path}});
  PolicyRunOptions how;
  if (options.timeline_iteration >= common.iterations) {
    throw InputError("--timeline-iteration: {}, expected 0 to {}", options.timeline_iteration,
                     common.iterations - 1);
  }
  how.keep_plan = options.timeline_iteration;
  how.iteration.count_out_of_memory = options.count_out_of_memory;
  const LengthTrace trace = load_trace(common.trace, common.trace_format);
  Faults faults;
  const PlanResult plan =
      plan_under_faults(command, options.plan, common, trace, options.faults, faults);
  how.iteration.variance = faults.variance;
  if (!options.memory_timeline.empty() && plan.model.memory != MemoryModel::composed) {
    throw InputError("--memory-timeline: {}, expected a plan made with --memory-model composed",
                     options.memory_timeline);
  }
  const BatchRun batches = batch_run(common, trace);
  const BatchSurvey surveyed = survey(batches);
  how.iteration.threads = static_cast<int>(common.threads);
  how.iteration.costing.no_communication = common.no_communication;
  how.iteration.costing.network = common.network;
  how.iteration.costing.collectives = common.collectives;
  use_schedule(common, how.iteration);
  how.iteration.costing.bandwidth_scale = options.bandwidth_scale;
  Progress progress("simulating", common.iterations, "iterations");
  how.iteration.on_progress = [&progress](std::size_t done) { progress.update(done); };
  const SimulatedRun run =
      run_policy(options.policy, policy_setup(plan, common, surveyed), batches, how);
  const SimulatedIteration one =
      simulate_iteration(*run.kept_plan, run.model, how.iteration, options.timeline_iteration);
  if (!options.timeline.empty()) {
    write_timeline(
        make_timeline(one.program, one.replay, static_cast<int>(options.timeline_iteration)),
        options.timeline);
  }
  RunContext context;
  context.strategies = run.strategies;
  context.devices = run.model.cluster.devices();
  if (run.model.memory == MemoryModel::composed) {
    const auto timeline = memory_timeline(one.program, one.replay, run.model);
    context.memory_peak = memory_peak(timeline);
    if (!options.memory_timeline.empty()) {
      write_memory_timeline(one.program, timeline, options.memory_timeline);
    }
  }
  context.rates = device_rates(common, run.model.cluster);
  context.counts_out_of_memory = options.count_out_of_memory;
  context.critical_path = critical_path(
      one.program,
      varied_durations(one.program, run.model, how.iteration, options.timeline_iteration),
      replay_options(run.model, how.iteration.costing));
  context.critical_iteration = options.timeline_iteration;
  const SystemChoice choice = system_choice(command, !options.plan.empty());
  context.notes = run_notes(plan, choice, common, surveyed, how.iteration.costing);
  context.notes.brief.insert(context.notes.brief.begin(),
                             fmt::format("policy {}: {}", options.policy, run.remark));
  if (common.no_communication && options.bandwidth_scale != 1) {
    context.notes.brief.emplace_back(
        "--bandwidth-scale changes nothing: with --no-communication no transfer takes time");
  }
  note_variance(faults.variance, run.model.cluster, context.notes);
  context.reproducible = common.reproducible;
  emit(common, run_report(run.result, context));
}

}  // namespace

void add_simulate_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("simulate", "replay planned iterations in virtual time");
  command->add_option("--plan", options->plan,
                      "plan file made by `hydraulis plan` [proposed from the trace]");
  add_common_options(*command, options->common,
                     Has::system | Has::trace | Has::batch | Has::context | Has::max_tokens |
                         Has::iterations | Has::communication | Has::schedule | Has::overlap |
                         Has::rates | Has::switching | Has::seed | Has::threads | Has::format |
                         Has::output | Has::verbose | Has::megatron);
  defaults_from_plan(*command, false);
  std::string names;
  for (const PolicyInfo& policy : policies()) {
    names += fmt::format("  {:<18} {}\n", policy.name, policy.summary);
  }
  command->add_option("--policy", options->policy, "who plans")->capture_default_str();
  CLI::Option* timeline =
      command->add_option("--timeline", options->timeline,
                          "write one iteration: Chrome trace (.json, .json.gz) or HDF5 (.h5)");
  command
      ->add_option("--timeline-iteration", options->timeline_iteration,
                   "which one, from 0; its longest path is told too")
      ->check(whole_number(0, 10'000'000))
      ->needs(timeline)
      ->capture_default_str();
  command
      ->add_option("--memory-timeline", options->memory_timeline,
                   "write what every stage of that iteration holds over time (CSV)")
      ->check(not_empty());
  command->add_flag("--count-out-of-memory", options->count_out_of_memory,
                    "go on where memory runs out and tell in how many iterations it does");
  add_faults_options(*command, options->faults);
  command
      ->add_option("--bandwidth-scale", options->bandwidth_scale,
                   "what-if: every link this many times as fast")
      ->check(finite_number(1e-6, kMostScale))
      ->capture_default_str();
  command->footer(
      "Policies:\n" + names +
      "Example:\n  hydraulis simulate --plan plan.json --trace web-gpt2 --iterations 100 "
      "--over-context truncate --timeline step.json");
  command->callback([options, command] { run(*options, *command); });
}

}  // namespace hydraulis
