#include "sim/run_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "costmodel/node_groups.h"

namespace hydraulis {
namespace {

/// Batches a policy's layout is tuned on.
constexpr std::uint64_t kTuningBatches = 16;

/// Iterations planned before they are simulated: enough to keep every thread busy.
std::uint64_t iterations_at_once(int threads) {
  return std::max<std::uint64_t>(32, 4 * static_cast<std::uint64_t>(std::max(1, threads)));
}

/// Adds what changing the strategy takes to an iteration: its devices move nothing and compute
/// nothing meanwhile.
void add_switch(IterationResult& iteration, double seconds, int devices) {
  const double longer = iteration.time_seconds / (iteration.time_seconds + seconds);
  iteration.time_seconds += seconds;
  iteration.bubble_share = iteration.bubble_share * longer;
  iteration.mfu *= longer;
  iteration.exposed_communication_seconds += seconds;
  iteration.losses.exposed += seconds * devices;
}

/// The batches of a run in order, with those that a policy wants to see ahead.
class Window {
 public:
  Window(const BatchRun& run, std::size_t lookahead)
      : sampler_(run.trace, run.sampling), left_(run.iterations), wanted_(lookahead + 1) {}

  /// The due batch and those after it; shorter at the end of the run.
  std::span<const Batch> next() {
    if (!batches_.empty()) batches_.erase(batches_.begin());
    for (; batches_.size() < wanted_ && left_ > 0; --left_) batches_.push_back(sampler_.next());
    return batches_;
  }

 private:
  Sampler sampler_;
  std::uint64_t left_;
  std::size_t wanted_;
  std::vector<Batch> batches_;
};

}  // namespace

BatchSurvey survey(const BatchRun& run) {
  BatchSurvey result;
  Sampler sampler(run.trace, run.sampling);
  const std::uint64_t budget = run.sampling.tokens_per_batch;
  const std::uint64_t wanted = std::min(kTuningBatches, run.iterations);
  for (std::uint64_t i = 0; i < run.iterations; ++i) {
    Batch batch = sampler.next();
    if (budget > 0 && batch.tokens() > budget) ++result.over_budget;
    const std::uint64_t taken = result.tuning.size();
    if (taken < wanted && i == taken * run.iterations / wanted) {
      result.tuning.push_back(std::move(batch));
    }
  }
  result.over_context = sampler.position().counts;
  return result;
}

SimulatedRun run_policy(const std::string& policy, const PolicySetup& setup, const BatchRun& run,
                        const PolicyRunOptions& options) {
  const auto planner = make_policy(policy, setup);
  SimulatedRun simulated;
  simulated.model = planner->cost_model();
  Window window(run, planner->lookahead());
  RunTotals totals;
  double wall_seconds = 0;
  std::vector<BatchPlan> plans;
  int strategy = -1;
  int switches = 0;
  if (options.keep_iterations) simulated.result.iterations.reserve(run.iterations);
  for (std::uint64_t first = 0; first < run.iterations; first += plans.size()) {
    const std::uint64_t count =
        std::min(iterations_at_once(options.iteration.threads), run.iterations - first);
    plans.clear();
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::span<const Batch> batches = window.next();
      const auto asked = std::chrono::steady_clock::now();
      plans.push_back(planner->plan(batches));
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - asked;
      simulated.planning_seconds += took.count() / static_cast<double>(run.iterations);
      simulated.most_planning_seconds = std::max(simulated.most_planning_seconds, took.count());
    }
    const auto begin = std::chrono::steady_clock::now();
    for (IterationResult& iteration :
         simulate_part(plans, simulated.model, options.iteration, first)) {
      if (setup.switch_seconds > 0 && strategy >= 0 && iteration.strategy != strategy) {
        ++switches;
        add_switch(iteration, setup.switch_seconds, simulated.model.cluster.devices());
      }
      strategy = iteration.strategy;
      totals.add(iteration);
      if (options.keep_iterations) simulated.result.iterations.push_back(iteration);
    }
    wall_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (options.keep_plan && *options.keep_plan >= first && *options.keep_plan < first + count) {
      simulated.kept_plan = std::move(plans[*options.keep_plan - first]);
    }
  }
  // Policies that make up strategies on the way have them all now, and know what they delayed.
  simulated.strategies = planner->strategies();
  simulated.remark = planner->remark();
  if (setup.switch_seconds > 0) {
    simulated.remark +=
        fmt::format("; {} switches of the strategy, {:g} s each", switches, setup.switch_seconds);
  }
  if (planner->reorders_data()) {
    simulated.remark += "; trains sequences in other iterations than drawn";
  }
  const ClusterSpec& cluster = simulated.model.cluster;
  simulated.result.summary = totals.summary(cluster.devices(), mean_peak_flops(cluster));
  simulated.result.summary.wall_seconds = wall_seconds;
  return simulated;
}

}  // namespace hydraulis
