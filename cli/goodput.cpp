// `hydraulis goodput`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/faults_option.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planning.h"
#include "report/goodput_report.h"
#include "sim/training_job.h"
#include "traces/length_trace.h"

namespace hydraulis {
namespace {

constexpr double kSecondsPerDay = 86400;
constexpr double kMostDays = 36500;
constexpr std::uint64_t kMostReplications = 100'000;

struct Options {
  CommonOptions common;
  std::string plan;
  std::string policy = "hydraulis";
  FaultsOptions faults;
  double days = 30;
  std::uint64_t replications = 64;
  bool search = true;
};

/// The job's iterations on all nodes and then on fewer and fewer.
class Clusters {
 public:
  Clusters(Options& options, const CLI::App& command, const LengthTrace& trace,
           const PlanResult& plan)
      : options_(options), command_(command), trace_(trace), plan_(plan) {
    costing_.no_communication = options.common.no_communication;
    costing_.network = options.common.network;
    costing_.collectives = options.common.collectives;
  }

  const CostingOptions& costing() const { return costing_; }

  void run_whole(const Variance& variance) { add(plan_, variance); }

  /// By a plan for each number of nodes. Where none holds the model, nodes stay idle until there is
  /// one; a job of too few waits.
  void run_shrunk(const Faults& faults) {
    const ClusterSpec& cluster = plan_.model.cluster;
    const int least = least_nodes(faults, cluster.nodes);
    if (least < cluster.nodes && !cluster.groups.empty()) {
      throw InputError(
          "{}: field 'recovery.mode' is shrink, which needs a cluster of like nodes; expected "
          "replace",
          options_.faults.path);
    }
    std::vector<std::string> reasons;  // of numbers of nodes without a plan, up to here
    for (int nodes = cluster.nodes - 1; nodes >= least; --nodes) {
      ClusterSpec fewer = cluster;
      fewer.nodes = nodes;
      fewer.name = fmt::format("{} nodes of {}", nodes, cluster.name);
      try {
        PlanRequest request = plan_request(command_, options_.common);
        request.memory_model = plan_.model.memory;
        request.optimizer_states = plan_.model.states;
        const PlanResult plan =
            make_plan(request, plan_.model.model, fewer, plan_.model.profile, &trace_);
        add(plan, faults.variance, reasons.size());
        for (const std::string& reason : reasons) {
          notes.push_back(fmt::format("uses {} nodes instead: {}", nodes, reason));
        }
        reasons.clear();
      } catch (const InfeasibleError& error) {
        reasons.emplace_back(error.what());
      }
    }
    for (const std::string& reason : reasons) notes.push_back("waits: " + reason);
  }

  /// Iterations on the whole cluster without variance.
  RunSummary steady() { return simulate(plan_, {}).result.summary; }

  std::vector<std::vector<IterationSample>> iterations;
  std::vector<ClusterRate> rates;
  std::vector<std::string> notes;
  std::string remark;  ///< of the policy, on the whole cluster

 private:
  SimulatedRun simulate(const PlanResult& plan, const Variance& variance) {
    const CommonOptions& common = options_.common;
    const BatchRun batches = batch_run(common, trace_);
    PolicyRunOptions how;
    how.iteration.threads = static_cast<int>(common.threads);
    how.iteration.costing = costing_;
    use_schedule(common, how.iteration);
    how.iteration.variance = variance;
    const std::string what =
        fmt::format("simulating iterations on {} nodes", plan.model.cluster.nodes);
    Progress progress(what, common.iterations, "iterations");
    how.iteration.on_progress = [&progress](std::size_t done) { progress.update(done); };
    return run_policy(options_.policy, policy_setup(plan, common, survey(batches)), batches, how);
  }

  /// Of a cluster of that size and of the `idle` sizes above it, which use no more nodes.
  void add(const PlanResult& plan, const Variance& variance, std::size_t idle = 0) {
    const SimulatedRun run = simulate(plan, variance);
    for (std::size_t more = idle + 1; more-- > 0;) {
      iterations.push_back(iteration_samples(run.result));
      rates.push_back({plan.model.cluster.nodes + static_cast<int>(more),
                       run.result.summary.mean_seconds, run.result.summary.tokens_per_second});
    }
    if (remark.empty()) remark = run.remark;
  }

  Options& options_;
  const CLI::App& command_;
  const LengthTrace& trace_;
  const PlanResult& plan_;
  CostingOptions costing_;
};

void run(Options& options, const CLI::App& command) {
  CommonOptions& common = options.common;
  refuse_same_file(
      {{"-o", common.output}},
      {{"--plan", options.plan}, {"--trace", common.trace}, {"--faults", options.faults.path}});
  const LengthTrace trace = load_trace(common.trace, common.trace_format);
  Faults faults;
  const PlanResult plan =
      plan_under_faults(command, options.plan, common, trace, options.faults, faults);
  training_job(faults, plan.model, {});  // refuses what cannot be before anything is simulated
  Clusters clusters(options, command, trace, plan);
  clusters.run_whole(faults.variance);
  clusters.run_shrunk(faults);

  TrainingJob job = training_job(faults, plan.model, std::move(clusters.iterations));
  job.horizon_seconds = options.days * kSecondsPerDay;
  const auto replications = static_cast<int>(options.replications);
  const auto threads = static_cast<int>(common.threads);
  GoodputContext context;
  context.days = options.days;
  context.replications = replications;
  context.clusters = std::move(clusters.rates);
  if (faults.variance.any()) {
    context.steady_tokens_per_second = clusters.steady().tokens_per_second;
  }
  context.checkpoint_bytes = checkpoint_bytes(faults, plan.model);
  context.interval_given = job.interval_seconds > 0 || job.interval_iterations > 0;
  const bool worth_seeking = job.fails && checkpoint_stop(job) > 0;
  if (!context.interval_given || (options.search && worth_seeking)) {
    context.search = search_interval(job, replications, threads);
  }
  if (!context.interval_given) job.interval_seconds = context.search->best_seconds;
  const auto begin = std::chrono::steady_clock::now();
  const Goodput result = measure_goodput(job, replications, threads);
  context.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  context.rates = device_rates(common, plan.model.cluster);
  context.rates.devices +=
      job.fails ? job.recovery.spare_nodes * plan.model.cluster.devices_per_node : 0;
  context.notes = run_notes(plan, system_choice(command, !options.plan.empty()), common,
                            survey(batch_run(common, trace)), clusters.costing());
  context.notes.brief.insert(context.notes.brief.begin(),
                             fmt::format("policy {}: {}", options.policy, clusters.remark));
  note_variance(faults.variance, plan.model.cluster, context.notes);
  for (const std::string& note : clusters.notes) context.notes.brief.push_back(note);
  context.reproducible = common.reproducible;
  emit(common, goodput_report(job, result, context));
}

}  // namespace

void add_goodput_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "goodput", "days of training on nodes that fail: checkpoints, restarts, what is left");
  command->add_option("--plan", options->plan,
                      "plan file made by `hydraulis plan` [proposed from the trace]");
  add_common_options(*command, options->common,
                     Has::system | Has::trace | Has::batch | Has::context | Has::max_tokens |
                         Has::iterations | Has::communication | Has::schedule | Has::rates |
                         Has::seed | Has::threads | Has::format | Has::output | Has::verbose);
  defaults_from_plan(*command, false);
  add_faults_options(*command, options->faults)->required();
  command->add_option("--policy", options->policy, "who plans")->capture_default_str();
  command->add_option("--days", options->days, "of training to simulate")
      ->check(finite_number(1e-3, kMostDays))
      ->capture_default_str();
  command
      ->add_option("--replications", options->replications,
                   "how often, each with other failures; confidence intervals are over these")
      ->check(whole_number(2, kMostReplications))
      ->capture_default_str();
  command->add_flag("!--no-search", options->search,
                    "do not seek the best time between checkpoints where the file gives one");
  command->footer(
      "Example:\n  hydraulis goodput --plan plan.json --trace web-gpt2 --over-context truncate "
      "--faults faults.json --days 30");
  command->callback([options, command] { run(*options, *command); });
}

}  // namespace hydraulis
