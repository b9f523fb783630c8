#include "planner/window_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "planner/policy.h"
#include "tests/planner/case_study.h"
#include "tests/planner/small_instances.h"

namespace hydraulis {
namespace {

using Batches = std::vector<std::vector<Sequence>>;

std::uint64_t tokens(const std::vector<Sequence>& batch) {
  return std::accumulate(batch.begin(), batch.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Sequence& s) { return sum + s.length; });
}

double total(const Batches& batches, const PreparedStrategies& prepared) {
  double sum = 0;
  for (const auto& batch : batches) sum += batch.empty() ? 0 : least_seconds(batch, prepared);
  return sum;
}

/// Makespans and traffic of the batches, each assigned.
double assigned(const Batches& batches, const PreparedStrategies& prepared) {
  double sum = 0;
  for (const auto& batch : batches) {
    const BatchPlan plan = assign(batch, prepared);
    sum +=
        plan.makespan_seconds + prepared.traffic_seconds[static_cast<std::size_t>(plan.strategy)];
  }
  return sum;
}

/// One strategy holds 100 tokens on two devices, the other 40 on each of four and is twice as fast.
PreparedStrategies two_strategies() {
  PreparedStrategies prepared = test::prepare_by_hand(
      {test::make_pipeline(1, 2, 1, 100, {0, 1, 0}), test::make_pipeline(1, 2, 1, 100, {0, 1, 0})});
  const PreparedStrategies fast = test::prepare_by_hand(
      std::vector<PipelineCost>(4, test::make_pipeline(1, 1, 1, 40, {0, 1, 0})));
  prepared.strategies.push_back(fast.strategies.front());
  prepared.pipelines.push_back(fast.pipelines.front());
  prepared.traffic_seconds.push_back(0);
  return prepared;
}

/// The least of all ways to deal the sequences with at most `budget` tokens a batch.
double exhaustive(const Batches& batches, const PreparedStrategies& prepared) {
  std::vector<Sequence> all;
  std::uint64_t budget = 0;
  for (const auto& batch : batches) {
    all.insert(all.end(), batch.begin(), batch.end());
    budget = std::max(budget, tokens(batch));
  }
  std::size_t ways = 1;
  for (std::size_t i = 0; i < all.size(); ++i) ways *= batches.size();
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t way = 0; way < ways; ++way) {
    Batches dealt(batches.size());
    std::size_t code = way;
    for (const Sequence& sequence : all) {
      dealt[code % batches.size()].push_back(sequence);
      code /= batches.size();
    }
    if (std::ranges::any_of(dealt, [&](const auto& b) { return tokens(b) > budget; })) continue;
    best = std::min(best, total(dealt, prepared));
  }
  return best;
}

TEST(WindowSplit, GathersTheLongSequences) {
  const PreparedStrategies prepared = two_strategies();
  // One long sequence in each of two batches keeps both on the slow strategy: 100 s each.
  const Batches drawn = {test::make_sequences({80, 40, 40, 40}),
                         test::make_sequences({80, 40, 40, 40})};
  const Batches dealt = deal_anew(drawn, prepared);
  EXPECT_NEAR(total(drawn, prepared), 200, 1e-2);
  // Together they leave a batch of five short ones to the fast strategy: 100 s and 40 to 50 s.
  EXPECT_LT(total(dealt, prepared), 180);
  EXPECT_GE(total(dealt, prepared), exhaustive(drawn, prepared) - 1e-9);
}

TEST(WindowSplit, IsNearTheBestOfAllWaysAndNeverSlowerThanAsDrawn) {
  Random random(11);
  const PreparedStrategies prepared = two_strategies();
  double found = 0;
  double best = 0;
  double drawn_seconds = 0;
  for (int round = 0; round < 40; ++round) {
    Batches drawn(2);
    std::uint64_t id = 0;
    for (auto& batch : drawn) {
      for (int i = 0; i < 5; ++i) {
        const bool is_long = random.below(4) == 0;
        const std::uint64_t length = is_long ? 50 + random.below(50) : 5 + random.below(35);
        batch.push_back({id++, static_cast<std::uint32_t>(length)});
      }
    }
    const Batches dealt = deal_anew(drawn, prepared);
    // What decides searches less than this.
    EXPECT_LE(assigned(dealt, prepared), assigned(drawn, prepared) * 1.02);
    std::multiset<std::uint64_t> ids;
    for (const auto& batch : dealt) {
      for (const Sequence& sequence : batch) ids.insert(sequence.id);
    }
    EXPECT_EQ(ids.size(), id);
    EXPECT_EQ(std::set<std::uint64_t>(ids.begin(), ids.end()).size(), id);
    found += assigned(dealt, prepared);
    best += exhaustive(drawn, prepared);
    drawn_seconds += assigned(drawn, prepared);
  }
  EXPECT_LE(found, 1.15 * best);  // of which lower bounds tell
  EXPECT_LT(found, drawn_seconds);
}

TEST(WindowSplit, GainsOnTheCaseStudyWithinTheTokensOfTheLargestBatch) {
  AssignmentOptions options;
  options.count_parameter_traffic = true;
  const PreparedStrategies prepared =
      prepare(test::case_study_set(), test::case_study_model(), options);
  Batches drawn;
  std::uint64_t most = 0;
  for (const Batch& batch : test::case_study_batches("web-gpt2", 8)) {
    drawn.push_back(sequences_of(batch));
    most = std::max(most, tokens(drawn.back()));
  }
  const Batches dealt = deal_anew(drawn, prepared);
  for (const auto& batch : dealt) EXPECT_LE(tokens(batch), most);
  EXPECT_LT(assigned(dealt, prepared), 0.99 * assigned(drawn, prepared));
}

}  // namespace
}  // namespace hydraulis
