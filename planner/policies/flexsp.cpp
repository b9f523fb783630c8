#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "costmodel/derived_schemes.h"
#include "planner/policies/group_solver.h"
#include "planner/policies/policies.h"
#include "planner/policies/sharded_layout.h"

namespace hydraulis {
namespace {

/// Numbers of steps tried above the fewest that memory allows.
constexpr int kStepCounts = 4;

class FlexSp : public OwnGroups {
 public:
  explicit FlexSp(const PolicySetup& setup)
      : OwnGroups(
            sharded_model(setup.model, context_degrees(setup.model, ContextExchange::all_to_all),
                          ContextExchange::all_to_all),
            setup.assignment.max_tokens) {
    const bool traffic = setup.assignment.count_parameter_traffic;
    step_ = sharded_step(model_, traffic);
    double best_seconds = std::numeric_limits<double>::infinity();
    std::int64_t longest = 0;
    Way best;
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      way_ = make_way(recompute, traffic);
      const GroupKind& largest = way_.kinds.back();
      longest = std::max(longest, largest.max_tokens);
      if (largest.padded(setup.context) > largest.max_tokens) continue;
      double seconds = 0;
      for (const auto& batch : tuning_batches(setup)) seconds += solve(batch).seconds;
      if (seconds < best_seconds) {
        best_seconds = seconds;
        best = way_;
      }
    }
    if (best.kinds.empty()) {
      throw InfeasibleError(
          "infeasible: memory per micro-batch: with sharded parameters no group of {} devices "
          "holds "
          "{} tokens, the context; the longest is {} tokens, {} fewer; lower the context to that "
          "or "
          "use devices with more memory",
          model_.cluster.devices(), setup.context, longest, setup.context - longest);
    }
    way_ = std::move(best);
    remark_ = fmt::format(
        "groups of 1 to {} devices for every step{}; sharded parameters, composed memory",
        way_.kinds.back().size, way_.recompute == Recompute::full ? " with recomputation" : "");
  }

 protected:
  BatchPlan group(std::span<const Batch> window) override {
    Solution solution = solve(sequences_of(window.front()));
    if (solution.plan.pipelines.empty()) {
      throw InfeasibleError(
          "infeasible: a sequence of the batch is longer than any group holds ({})",
          way_.kinds.back().max_tokens);
    }
    return std::move(solution.plan);
  }

 private:
  struct Way {
    Recompute recompute = Recompute::none;
    std::vector<GroupKind> kinds;
    std::vector<ShardedTimes> times;
  };
  struct Solution {
    BatchPlan plan;
    double seconds = std::numeric_limits<double>::infinity();
  };

  Way make_way(Recompute recompute, bool traffic) {
    Way way;
    way.recompute = recompute;
    for (const Scheme& scheme : known_schemes(model_)) {
      if (scheme.recompute != recompute) continue;
      const PipelineCost& pipeline = costs_.of(scheme);
      way.times.push_back(sharded_times(model_, pipeline, traffic));
      const StageCost& forward = way.times.back().forward;
      const StageCost& backward = way.times.back().backward;
      way.kinds.push_back({scheme.cp,
                           pipeline.max_tokens,
                           {forward.a + backward.a, forward.b + backward.b, forward.c + backward.c},
                           scheme.cp > 1 ? 2 * scheme.cp : 1});
    }
    return way;
  }

  /// Sequences sorted, cut into steps of about equal tokens, each step's groups solved; the best
  /// number of steps.
  Solution solve(std::span<const Sequence> batch) {
    const std::vector<Sequence> sequences = longest_first(batch);
    std::int64_t tokens = 0;
    for (const Sequence& sequence : sequences) tokens += sequence.length;
    const int devices = model_.cluster.devices();
    std::int64_t most = 0;
    for (const GroupKind& kind : way_.kinds) {
      most = std::max(most, kind.max_tokens * (devices / kind.size));
    }
    Solution best;
    if (most == 0) return best;
    int tried = 0;
    const auto fewest = static_cast<std::size_t>((tokens + most - 1) / most);
    for (std::size_t steps = std::max<std::size_t>(1, fewest);
         steps <= sequences.size() && tried < kStepCounts; ++steps) {
      Solution solution = solve_steps(sequences, tokens, steps);
      if (solution.plan.pipelines.empty()) continue;
      ++tried;
      if (solution.seconds < best.seconds) best = std::move(solution);
    }
    return best;
  }

  Solution solve_steps(const std::vector<Sequence>& sequences, std::int64_t tokens,
                       std::size_t steps) {
    Solution result;
    result.seconds = 0;
    std::size_t first = 0;
    std::int64_t taken = 0;
    for (std::size_t step = 0; step < steps; ++step) {
      std::size_t last = first;
      const auto due =
          static_cast<double>(tokens) * static_cast<double>(step + 1) / static_cast<double>(steps);
      while (last < sequences.size() && (step + 1 == steps || static_cast<double>(taken) < due)) {
        taken += sequences[last++].length;
      }
      if (first == last) continue;
      const std::span<const Sequence> part = std::span(sequences).subspan(first, last - first);
      const auto solved = solve_groups(part, way_.kinds, model_.cluster.devices(), true);
      if (!solved) return {};
      const int phase = result.plan.pipelines.empty() ? 0 : result.plan.phases();
      double forward = 0;
      double backward = 0;
      for (const SolvedGroup& group : solved->groups) {
        const ShardedTimes& times = way_.times[group.kind];
        PipelinePlan pipeline{times.pipeline.scheme, {{}}, 0, phase};
        MicroBatch& micro_batch = pipeline.micro_batches.front();
        for (const int i : group.sequences) add_sequence(micro_batch, part[i], times.pipeline);
        const double squares = micro_batch.sum_squares();
        const auto size = static_cast<double>(micro_batch.tokens() + micro_batch.padding);
        forward = std::max(forward, times.forward.of(squares, size));
        backward = std::max(backward, times.backward.of(squares, size));
        result.plan.pipelines.push_back(std::move(pipeline));
      }
      result.seconds += step_seconds(step_, forward, backward);
      first = last;
    }
    return result;
  }

  ShardedStep step_;
  Way way_;
};

}  // namespace

std::unique_ptr<Policy> make_flexsp(const PolicySetup& setup) {
  return std::make_unique<FlexSp>(setup);
}

}  // namespace hydraulis
