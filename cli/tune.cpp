// `hydraulis tune`.
#include "sim/tune.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planning.h"
#include "planner/plan_check.h"
#include "report/tune_report.h"
#include "traces/length_trace.h"

namespace hydraulis {
namespace {

constexpr std::uint64_t kMostSearched = 100'000;
constexpr std::uint64_t kMostTokens = 1'000'000'000'000;

struct Options {
  CommonOptions common;
  TuneOptions tune;
  std::string plan;
  std::vector<std::string> against;
  std::vector<std::uint64_t> tokens_per_batch;
};

/// A plan to compare with: its strategies must be for the cluster and model that are tuned for.
TunePlan rival(const std::string& path, const PlanResult& start) {
  const Plan plan = plan_from_json(read_json_file(path), path);
  if (plan.set.optimizer.devices() != start.model.cluster.devices()) {
    throw InputError("{}: is for {} devices, expected the {} of the cluster tuned for", path,
                     plan.set.optimizer.devices(), start.model.cluster.devices());
  }
  CostModel model = start.model;
  model.optimizer = plan.set.optimizer;
  return {path, plan.set, check_plan(plan, model).max_tokens};
}

void run(Options& options, const CLI::App& command) {
  CommonOptions& common = options.common;
  std::vector<NamedFile> inputs = {{"--plan", options.plan}, {"--trace", common.trace}};
  for (const std::string& path : options.against) inputs.push_back({"--against", path});
  refuse_same_file({{"-o", common.output}}, inputs);
  if (!options.tokens_per_batch.empty()) {
    common.tokens_per_batch = options.tokens_per_batch.front();
  }
  const auto begin = std::chrono::steady_clock::now();
  const LengthTrace trace = load_trace(common.trace, common.trace_format);
  const PlanResult start = plan_for_run(command, options.plan, common, trace);
  TuneProblem problem;
  problem.model = start.model;
  problem.start = {options.plan.empty() ? "plan's proposal" : options.plan, start.plan.set,
                   static_cast<std::int64_t>(common.max_tokens)};
  for (const std::string& path : options.against) problem.against.push_back(rival(path, start));
  problem.trace = &trace;
  problem.sampling = sampler_options(common);
  problem.tokens_per_batch = options.tokens_per_batch;
  if (problem.tokens_per_batch.empty()) {
    problem.tokens_per_batch = {problem.sampling.tokens_per_batch};
  }
  problem.no_communication = common.no_communication;
  problem.network = common.network;
  problem.collectives = common.collectives;
  TuneOptions& how = options.tune;
  how.held_out_iterations = common.iterations;
  if (command.count("--held-out-seed") == 0) how.held_out_seed = common.seed + 1;
  if (how.held_out_seed == common.seed) {
    throw InputError("--held-out-seed: {}, expected another seed than --seed {}", how.held_out_seed,
                     common.seed);
  }
  if (command.count("--max-tokens") > 0) how.max_tokens = {problem.start.max_tokens};
  how.threads = static_cast<int>(common.threads);

  Progress progress("tuning", 0, "iterations simulated");
  how.on_progress = [&progress](std::uint64_t done) { progress.update(done); };
  const TuneResult result = tune(problem, how);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  const TuneBudget& best = result.budgets[result.best];
  const TunePlan& winner = best.winner().plan;
  if (!common.output.empty()) {
    Plan plan = start.plan;
    CostModel model = start.model;
    model.optimizer = winner.set.optimizer;
    plan.set = winner.set;
    plan.schedule = winner.schedule;
    plan.schemes = scheme_options(model, winner.max_tokens);
    plan.context = common.context;
    plan.tokens_per_batch = best.tokens_per_batch;
    plan.proposal_seconds = seconds;
    write_text_file(common.output, to_text(to_json(plan, common.reproducible)));
  }
  CostingOptions costing;
  costing.no_communication = common.no_communication;
  costing.network = common.network;
  costing.collectives = common.collectives;
  TuneContext context;
  context.notes = provenance_notes(start, system_choice(command, !options.plan.empty()), &costing);
  context.notes.verbose = common.verbose;
  context.options = how;
  context.seed = common.seed;
  context.wall_seconds = seconds;
  context.reproducible = common.reproducible;
  emit(common, tune_report(result, context), false);
}

}  // namespace

void add_tune_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "tune", "search strategy sets, layouts and packing limits with the simulator");
  command->add_option("--plan", options->plan,
                      "plan file that the search starts from [proposed from the trace]");
  command
      ->add_option("--against", options->against,
                   "plan files that the winner is compared with; never candidates")
      ->delimiter(',');
  add_common_options(*command, options->common,
                     Has::system | Has::trace | Has::context | Has::max_tokens | Has::iterations |
                         Has::communication | Has::seed | Has::threads | Has::format | Has::output |
                         Has::verbose);
  command
      ->add_option("--tokens-per-batch", options->tokens_per_batch,
                   "tokens of a global batch; several, by commas, are searched each and compared "
                   "by tokens/s [the plan's, or 200000]")
      ->delimiter(',')
      ->check(whole_number(1, kMostTokens));
  command->get_option("--iterations")->description("held-out iterations that results are of [100]");
  command->get_option("--max-tokens")->description("cap on the tokens of a micro-batch [searched]");
  command
      ->add_option("--search-iterations", options->tune.search_iterations,
                   "iterations that candidates are judged on")
      ->check(whole_number(1, kMostSearched))
      ->capture_default_str();
  command
      ->add_option("--held-out-seed", options->tune.held_out_seed,
                   "seed of the held-out iterations [--seed + 1]")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()));
  command
      ->add_option("--most-strategies", options->tune.most_strategies,
                   "strategies in a set at most")
      ->check(whole_number(1, 64))
      ->capture_default_str();
  command
      ->add_option("--generations", options->tune.generations,
                   "rounds in which chosen strategies are changed")
      ->check(whole_number(0, 100))
      ->capture_default_str();
  command
      ->add_option_function<std::vector<std::string>>(
          "--schedules",
          [options](const std::vector<std::string>& names) {
            options->tune.schedules.clear();
            for (const std::string& name : names) {
              options->tune.schedules.push_back(parse_schedule(name, "--schedules"));
            }
          },
          "that the winner may get where they gain over 1F1B; `train` runs no others than gpipe "
          "[gpipe]")
      ->delimiter(',');
  command->add_flag("--keep-layout", options->tune.keep_layout,
                    "leave the optimizer layout as the starting plan has it");
  command->footer(
      "Example:\n  hydraulis tune --model llama-32b --cluster a800-64 --trace web-gpt2 "
      "--over-context truncate -o tuned.json");
  command->callback([options, command] { run(*options, *command); });
}

}  // namespace hydraulis
