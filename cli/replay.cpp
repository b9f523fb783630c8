// `hydraulis replay`.
#include <CLI/CLI.hpp>
#include <memory>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planning.h"
#include "cli/timeline_output.h"
#include "report/run_report.h"
#include "sim/run_programs.h"

namespace hydraulis {
namespace {

struct Options {
  CommonOptions common;
  std::string programs;
  std::string plan;
  std::string timeline;
};

/// The system that the plan names, where the command line does not say otherwise.
Plan system_of(const Options& options, const CLI::App& command) {
  const CommonOptions& common = options.common;
  Plan plan;
  plan.memory_model = "composed";
  if (!options.plan.empty()) plan = plan_from_json(read_json_file(options.plan), options.plan);
  const bool planned = !options.plan.empty();
  const auto given = [&](const char* name) { return !planned || command.count(name) > 0; };
  if (given("--model")) plan.model = common.model;
  if (given("--cluster")) plan.cluster = common.cluster;
  if (given("--profile")) plan.profile = common.profile;
  if (command.count("--memory-model") > 0) {
    plan.memory_model = common.memory_model == MemoryModel::composed ? "composed" : "published";
  }
  if (command.count("--schemes") > 0) {
    plan.scheme_space = parse_scheme_space(common.schemes, "--schemes");
  }
  return plan;
}

void run(const Options& options, const CLI::App& command) {
  const CommonOptions& common = options.common;
  check_timeline_name(options.timeline);
  refuse_same_file({{"-o", common.output}, {"--timeline", options.timeline}},
                   {{"PROGRAMS", options.programs}, {"--plan", options.plan}});
  const std::vector<StepProgram> programs = read_programs(options.programs);
  PlanResult system;
  system.plan = system_of(options, command);
  expect_cluster(programs, load_cluster(system.plan.cluster));
  system.plan.set.optimizer = programs.front().program.optimizer;
  system.model = cost_model_of(system.plan, options.plan.empty() ? "--model" : options.plan);
  IterationOptions how;
  how.costing.no_communication = common.no_communication;
  how.costing.network = common.network;
  how.costing.collectives = common.collectives;
  how.check_memory = false;  // they have run
  const ProgramRun run = simulate_programs(programs, system.model, how);
  if (!options.timeline.empty()) write_timeline(run.timeline, options.timeline);
  RunContext context;
  context.strategies = run.strategies;
  context.devices = system.model.cluster.devices();
  context.notes =
      provenance_notes(system, system_choice(command, !options.plan.empty()), &how.costing);
  context.notes.verbose = common.verbose;
  context.reproducible = common.reproducible;
  emit(common, run_report(run.result, context));
}

}  // namespace

void add_replay_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("replay", "simulate the very programs that a training run executed");
  command
      ->add_option("PROGRAMS", options->programs,
                   "program file, or folder of them as `train` writes it (OUTPUT/programs)")
      ->required()
      ->check(not_empty());
  command->add_option("--plan", options->plan,
                      "plan file that names model, cluster and profile where they are not given");
  add_common_options(*command, options->common,
                     Has::system | Has::communication | Has::format | Has::output | Has::verbose);
  command->add_option(
      "--timeline", options->timeline,
      "write all of them: HDF5 (.h5, for `diff`) or Chrome trace (.json, .json.gz)");
  command->footer(
      "Example:\n  hydraulis replay run/programs --plan plan.json --profile machine.h5 "
      "--timeline predicted.h5\n  hydraulis diff predicted.h5 run/timeline.h5");
  command->callback([options, command] { run(*options, *command); });
}

}  // namespace hydraulis
