// Policies on one homogeneous layout: Megatron-LM, DynaPipe, WLB-LLM.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "planner/policies/policies.h"
#include "tests/planner/policies/small_setup.h"

namespace hydraulis {
namespace {

using test::batch_of;
using test::lengths_of;
using test::row;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Megatron, PacksInTheOrderDrawnAndPadsToTheContext) {
  const std::vector<Batch> batches = {batch_of({600, 500, 300, 800, 100})};
  const auto policy = make_megatron(test::small_setup(2, 1000, {row(1, 1, 0, 1e-3, 0)}, batches));
  const BatchPlan plan = policy->plan(batches);
  EXPECT_THAT(lengths_of(plan), ElementsAre(ElementsAre(ElementsAre(600), ElementsAre(800, 100)),
                                            ElementsAre(ElementsAre(500, 300))));
  for (const PipelinePlan& pipeline : plan.pipelines) {
    for (const MicroBatch& pack : pipeline.micro_batches) {
      EXPECT_EQ(pack.tokens() + pack.padding, 1000u);
    }
  }
  EXPECT_DOUBLE_EQ(plan.makespan_seconds, 2.0);
}

// One device a sequence is too little; rings of two hold it.
TEST(Megatron, LongContextTakesContextParallelism) {
  const std::vector<Batch> batches = {batch_of({12'000, 500})};
  PolicySetup setup = test::small_setup(4, 12'000, {row(1, 1, 1e-6, 1e-3, 0)}, batches);
  setup.model.cluster.intra_node = {1e9, 1e-6};
  const auto policy = make_megatron(setup);
  for (const PipelinePlan& pipeline : policy->plan(batches).pipelines) {
    EXPECT_GE(pipeline.scheme.cp, 2);
  }
}

/// All ways to cut sequences that stand by length into micro-batches, each padded to its longest.
double best_by_hand(std::vector<std::uint32_t> lengths, double a, double b, double c) {
  std::sort(lengths.rbegin(), lengths.rend());
  double best = std::numeric_limits<double>::infinity();
  for (unsigned cuts = 0; cuts < 1u << (lengths.size() - 1); ++cuts) {
    double seconds = 0;
    std::size_t first = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const bool ends = i + 1 == lengths.size() || (cuts >> i & 1u) != 0;
      if (!ends) continue;
      double squares = 0;
      for (std::size_t k = first; k <= i; ++k) squares += 1.0 * lengths[k] * lengths[k];
      seconds += a * squares + b * lengths[first] * static_cast<double>(i + 1 - first) + c;
      first = i + 1;
    }
    best = std::min(best, seconds);
  }
  return best;
}

TEST(DynaPipe, SplitsAsExhaustiveSearchDoes) {
  const std::vector<std::vector<std::uint32_t>> cases = {
      {900, 850, 300, 280, 260, 40, 30}, {500, 500, 500}, {1000, 10, 10, 10, 10, 10, 10, 10}};
  for (const auto& lengths : cases) {
    const std::vector<Batch> batches = {batch_of(lengths)};
    const auto policy =
        make_dynapipe(test::small_setup(1, 1000, {row(1, 1, 1e-6, 1e-3, 0.1)}, batches));
    // The most a micro-batch may take is bounded in steps of a third, which none of these needs.
    EXPECT_NEAR(policy->plan(batches).makespan_seconds, best_by_hand(lengths, 1e-6, 1e-3, 0.1),
                1e-9);
  }
}

TEST(DynaPipe, RowsOfAMicroBatchAreAsLongAsItsLongest) {
  const std::vector<Batch> batches = {batch_of({900, 850, 300, 280, 260, 40, 30})};
  const auto policy =
      make_dynapipe(test::small_setup(2, 1000, {row(1, 1, 1e-6, 1e-3, 0.1)}, batches));
  for (const PipelinePlan& pipeline : policy->plan(batches).pipelines) {
    for (const MicroBatch& micro_batch : pipeline.micro_batches) {
      EXPECT_EQ(micro_batch.tokens() + micro_batch.padding,
                micro_batch.lengths.front() * micro_batch.lengths.size());
    }
  }
}

TEST(WlbLlm, OutliersWaitUntilThereIsOneForEveryMicroBatch) {
  // Two replicas and 2,000 tokens: two micro-batches a step, so outliers leave in pairs.
  const std::vector<Batch> batches = {batch_of({900, 200, 200, 200, 200, 200}, 0),
                                      batch_of({800, 240, 240, 240, 240, 240}, 10),
                                      batch_of({950, 200, 200, 200, 200, 200}, 20)};
  const auto policy = make_wlb(test::small_setup(2, 1000, {row(1, 1, 1e-6, 1e-3, 0)}, batches));
  EXPECT_TRUE(policy->reorders_data());
  const auto longest = [](const BatchPlan& plan) {
    std::vector<std::uint32_t> result;
    for (const auto& pipeline : lengths_of(plan)) {
      for (const auto& micro_batch : pipeline) result.push_back(micro_batch.front());
    }
    return result;
  };
  EXPECT_THAT(longest(policy->plan(batches)), ElementsAre(200, 200));
  EXPECT_THAT(longest(policy->plan(std::span(batches).subspan(1))), ElementsAre(900, 800));
  // The last batch of a run keeps nothing back.
  EXPECT_THAT(longest(policy->plan(std::span(batches).subspan(2))), ElementsAre(950, 200));
  // The sequence of 900 tokens waited one iteration: 900 of 5,850 tokens.
  EXPECT_THAT(policy->remark(), HasSubstr("1 of 18 sequences delayed, 0.15 iterations"));
}

TEST(WlbLlm, ASequenceThatNothingHoldsEndsTheRun) {
  const std::vector<Batch> batches = {batch_of({300}), batch_of({9000})};
  const auto policy = make_wlb(test::small_setup(2, 1000, {row(1, 1, 1e-6, 1e-3, 0)}, {}));
  EXPECT_THROW(policy->plan(std::span(batches).subspan(1)), InfeasibleError);
}

TEST(WlbLlm, MicroBatchesAreBalancedInTimeNotInTokens) {
  // Attention alone: 600² against six of 245: equal work, unequal tokens.
  const std::vector<Batch> batches = {batch_of({600, 245, 245, 245, 245, 245, 245})};
  PolicySetup setup = test::small_setup(2, 2000, {row(1, 1, 1e-6, 1e-9, 0)}, batches);
  const auto plan = make_wlb(setup)->plan(batches);
  EXPECT_THAT(lengths_of(plan),
              ElementsAre(ElementsAre(ElementsAre(600)),
                          ElementsAre(ElementsAre(245, 245, 245, 245, 245, 245))));
}

}  // namespace
}  // namespace hydraulis
