// Strategies chosen with the coming batches and the cost of switching in view.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "planner/assignment.h"
#include "planner/policy.h"
#include "tests/planner/case_study.h"

namespace hydraulis {
namespace {

PolicySetup setup(std::span<const Batch> batches, double switch_seconds) {
  PolicySetup result;
  result.model = test::case_study_model();
  result.set = test::case_study_set();
  result.context = 32'768;
  result.batches = batches;
  result.assignment.count_parameter_traffic = true;
  result.switch_seconds = switch_seconds;
  return result;
}

std::vector<BatchPlan> plans_of(const char* name, std::span<const Batch> batches,
                                double switch_seconds) {
  const auto policy = make_policy(name, setup(batches, switch_seconds));
  std::vector<BatchPlan> plans;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const std::size_t seen = std::min(policy->lookahead() + 1, batches.size() - i);
    plans.push_back(policy->plan(batches.subspan(i, seen)));
  }
  return plans;
}

/// Makespans, parameter traffic and switches of a run.
double seconds_of(const std::vector<BatchPlan>& plans, const PreparedStrategies& prepared,
                  double switch_seconds) {
  double seconds = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    seconds += plans[i].makespan_seconds +
               prepared.traffic_seconds[static_cast<std::size_t>(plans[i].strategy)];
    if (i > 0 && plans[i].strategy != plans[i - 1].strategy) seconds += switch_seconds;
  }
  return seconds;
}

TEST(Steady, SwitchingForNothingIsTheSameAsNotLookingAhead) {
  const auto batches = test::case_study_batches("commoncrawl", 4);
  const auto plain = plans_of("hydraulis", batches, 0);
  const auto steady = plans_of("hydraulis-steady", batches, 0);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(steady[i].strategy, plain[i].strategy);
    EXPECT_DOUBLE_EQ(steady[i].makespan_seconds, plain[i].makespan_seconds);
  }
}

// Against every sequence of strategies over the batches, each assigned in full.
TEST(Steady, IsNearTheBestOfAllSequencesOfStrategies) {
  const auto batches = test::case_study_batches("commoncrawl", 5);
  const PolicySetup made = setup(batches, 0);
  const PreparedStrategies prepared = prepare(made.set, made.model, made.assignment);
  const std::size_t strategies = prepared.strategies.size();
  std::vector<std::vector<double>> seconds;
  for (const Batch& batch : batches) {
    const std::vector<Sequence> sequences = sequences_of(batch);
    auto& row = seconds.emplace_back();
    for (std::size_t s = 0; s < strategies; ++s) {
      StrategySet one{{prepared.strategies[s]}, made.set.optimizer};
      try {
        row.push_back(
            assign(sequences, prepare(one, made.model, made.assignment)).makespan_seconds +
            prepared.traffic_seconds[s]);
      } catch (const std::exception&) {
        row.push_back(std::numeric_limits<double>::infinity());
      }
    }
  }
  for (const double switch_seconds : {0.2, 20.0}) {
    std::vector<double> best = seconds[0];
    for (std::size_t b = 1; b < batches.size(); ++b) {
      std::vector<double> next(strategies);
      for (std::size_t s = 0; s < strategies; ++s) {
        next[s] = std::numeric_limits<double>::infinity();
        for (std::size_t before = 0; before < strategies; ++before) {
          next[s] =
              std::min(next[s], best[before] + seconds[b][s] + (before == s ? 0 : switch_seconds));
        }
      }
      best = next;
    }
    const double optimum = *std::ranges::min_element(best);
    const double steady =
        seconds_of(plans_of("hydraulis-steady", batches, switch_seconds), prepared, switch_seconds);
    const double greedy =
        seconds_of(plans_of("hydraulis", batches, switch_seconds), prepared, switch_seconds);
    EXPECT_GE(steady, optimum * (1 - 1e-9));
    EXPECT_LE(steady, optimum * 1.01) << switch_seconds;
    EXPECT_LE(steady, greedy * (1 + 1e-3)) << switch_seconds;
  }
}

}  // namespace
}  // namespace hydraulis
