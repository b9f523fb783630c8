// Policies with sharded parameters: DeepSpeed, FSDP, FlexSP, LongAlign.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "costmodel/cost_model.h"
#include "planner/policies/policies.h"
#include "planner/policies/sharded_layout.h"
#include "planner/program/lower.h"
#include "planner/program/verify.h"
#include "planner/verify_plan.h"
#include "tests/planner/policies/small_setup.h"

namespace hydraulis {
namespace {

using test::batch_of;
using test::lengths_of;
using test::row;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Eight devices that hold some 1,200 tokens each.
PolicySetup setup(std::int64_t context, std::span<const Batch> batches) {
  PolicySetup result = test::small_setup(8, context, {row(1, 1, 1e-6, 1e-3, 0.01)}, batches);
  result.model.cluster.intra_node = {1e9, 1e-6};
  result.assignment.count_parameter_traffic = true;
  return result;
}

void expect_sound(Policy& policy, const BatchPlan& plan, const Batch& batch) {
  EXPECT_THAT(verify(plan, batch, policy.cost_model()), IsEmpty());
  EXPECT_THAT(verify(lower(plan, policy.cost_model()), policy.cost_model(), &batch), IsEmpty());
}

TEST(DeepSpeed, OneDegreeForAllThatHoldsTheContext) {
  const std::vector<Batch> batches = {batch_of({2200, 900, 700, 500, 300, 100})};
  const auto policy = make_deepspeed(setup(2400, batches));
  const BatchPlan plan = policy->plan(batches);
  const int degree = plan.pipelines.front().scheme.cp;
  EXPECT_GE(degree, 2);
  EXPECT_THAT(plan.pipelines, SizeIs(8 / degree));
  for (const PipelinePlan& pipeline : plan.pipelines) EXPECT_EQ(pipeline.scheme.cp, degree);
  expect_sound(*policy, plan, batches[0]);
}

TEST(DeepSpeed, HeadsLimitTheDegree) {
  PolicySetup six = setup(1000, {});
  six.model.model.heads = six.model.model.kv_heads = 6;
  EXPECT_THAT(context_degrees(six.model, ContextExchange::all_to_all), ElementsAre(1, 2));
  EXPECT_THAT(context_degrees(six.model, ContextExchange::ring), ElementsAre(1, 2, 4, 8));
}

TEST(Fsdp, RanksTakeWhatTheSamplerDealsThem) {
  const std::vector<Batch> batches = {batch_of({10, 20, 30, 40, 50, 60, 70, 80, 990, 11})};
  PolicySetup slow_rings = setup(1000, batches);
  slow_rings.model.cluster.intra_node = {1e5, 1e-6};
  const auto policy = make_fsdp(slow_rings);
  const BatchPlan plan = policy->plan(batches);
  ASSERT_THAT(plan.pipelines, SizeIs(8));
  // The ninth sequence is the first rank's second, and fills a pack with the 10 tokens before it.
  EXPECT_THAT(lengths_of(plan)[0], ElementsAre(ElementsAre(10, 990)));
  EXPECT_THAT(lengths_of(plan)[1], ElementsAre(ElementsAre(20, 11)));
  EXPECT_THAT(lengths_of(plan)[7], ElementsAre(ElementsAre(80)));
  expect_sound(*policy, plan, batches[0]);
}

TEST(FlexSp, LongAndShortSequencesRunSideBySideOnUnequalGroups) {
  // Two nodes of four with slow links in between. Among eight devices an all-to-all takes 0.64 ms a
  // token beside 0.125 ms of work, so the long sequence is fastest on four (1.6 s); a device alone
  // works 1 ms a token and exchanges nothing: 1.1 s two short sequences.
  const std::vector<Batch> batches = {batch_of({2000, 400, 400, 400, 400})};
  PolicySetup slow = setup(2400, batches);
  slow.model.cluster.nodes = 2;
  slow.model.cluster.devices_per_node = 4;
  slow.model.cluster.intra_node = {3e6, 1e-6};
  slow.model.cluster.inter_node = {1e5, 1e-6};
  const auto policy = make_flexsp(slow);
  const BatchPlan plan = policy->plan(batches);
  expect_sound(*policy, plan, batches[0]);
  EXPECT_EQ(plan.phases(), 1);
  std::multiset<int> degrees;
  for (const PipelinePlan& pipeline : plan.pipelines) {
    degrees.insert(pipeline.scheme.cp);
    EXPECT_THAT(pipeline.micro_batches, SizeIs(1));
    EXPECT_EQ(pipeline.scheme.cp == 4, pipeline.micro_batches[0].lengths.front() == 2000);
  }
  EXPECT_EQ(degrees, (std::multiset<int>{1, 1, 4}));
}

TEST(FlexSp, MoreThanMemoryHoldsTakesMoreSteps) {
  std::vector<std::uint32_t> lengths(40, 600);
  const std::vector<Batch> batches = {batch_of(lengths)};
  const auto policy = make_flexsp(setup(2400, batches));
  const BatchPlan plan = policy->plan(batches);
  EXPECT_GT(plan.phases(), 1);
  expect_sound(*policy, plan, batches[0]);
}

TEST(LongAlign, BatchesOfAWindowHaveLengthsOfTheirOwn) {
  std::vector<Batch> batches;
  for (std::uint64_t i = 0; i < 18; ++i) {
    batches.push_back(batch_of({100, 1000, 300, 500, 700, 50}, 10 * i));
  }
  const auto policy = make_longalign(setup(1000, batches));
  EXPECT_EQ(policy->lookahead(), 15u);
  EXPECT_TRUE(policy->reorders_data());
  std::multiset<std::uint64_t> trained;
  std::uint32_t longest_before = 0;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const std::size_t seen = std::min<std::size_t>(16, batches.size() - i);
    const BatchPlan plan = policy->plan(std::span(batches).subspan(i, seen));
    std::uint32_t shortest = UINT32_MAX, longest = 0;
    for (const PipelinePlan& pipeline : plan.pipelines) {
      for (const MicroBatch& micro_batch : pipeline.micro_batches) {
        ASSERT_THAT(micro_batch.lengths, SizeIs(1));
        shortest = std::min(shortest, micro_batch.lengths.front());
        longest = std::max(longest, micro_batch.lengths.front());
        trained.insert(micro_batch.sequence_ids.front());
      }
    }
    if (i == 16) longest_before = 0;  // the next window
    EXPECT_GE(shortest, longest_before) << i;
    longest_before = longest;
  }
  EXPECT_THAT(trained, SizeIs(18 * 6));
  EXPECT_EQ(std::set<std::uint64_t>(trained.begin(), trained.end()).size(), trained.size());
}

// The paper's claim: a step takes as long as its longest sequence, so like lengths belong together.
TEST(LongAlign, SortedBatchesAreQuickerThanDrawnOnes) {
  Random random(3);
  std::vector<Batch> batches;
  for (std::uint64_t i = 0; i < 16; ++i) {
    std::vector<std::uint32_t> lengths;
    for (int k = 0; k < 64; ++k) {  // log-uniform from 10 to 1,000 tokens
      lengths.push_back(static_cast<std::uint32_t>(10 * std::pow(100, random.uniform())));
    }
    batches.push_back(batch_of(lengths, 64 * i));
  }
  const auto policy = make_longalign(setup(1000, batches));
  double sorted = 0;
  double drawn = 0;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const BatchPlan plan = policy->plan(std::span(batches).subspan(i));
    sorted += plan.makespan_seconds;
    const auto groups = plan.pipelines.size();
    const StageCost cost = *stage_cost(policy->cost_model(), plan.pipelines.front().scheme, 0);
    for (std::size_t first = 0; first < batches[i].lengths.size(); first += groups) {
      std::uint32_t longest = 0;
      for (std::size_t k = first; k < std::min(first + groups, batches[i].lengths.size()); ++k) {
        longest = std::max(longest, batches[i].lengths[k]);
      }
      drawn += cost.of(1.0 * longest * longest, longest);
    }
  }
  RecordProperty("drawn_over_sorted", std::to_string(drawn / sorted));
  EXPECT_GT(drawn, 1.5 * sorted);
  EXPECT_LT(drawn, 4 * sorted);
}

TEST(Sharded, ContextThatNoGroupHoldsNamesTheLongest) {
  const std::vector<Batch> batches = {batch_of({100})};
  for (const auto make : {make_deepspeed, make_fsdp, make_flexsp, make_longalign}) {
    try {
      make(setup(1'000'000, batches));
      FAIL() << "expected InfeasibleError";
    } catch (const InfeasibleError& error) {
      EXPECT_THAT(error.what(), HasSubstr("1000000"));
      EXPECT_THAT(error.what(), HasSubstr("the longest is"));
    }
  }
}

TEST(Sharded, ProfileWithoutATimeOfOneDeviceIsRefused) {
  const std::vector<Batch> batches = {batch_of({100})};
  PolicySetup tensor_only = setup(1000, batches);
  tensor_only.model.profile.schemes = {row(2, 1, 1e-6, 1e-3, 0)};
  EXPECT_THROW(make_deepspeed(tensor_only), InfeasibleError);
}

}  // namespace
}  // namespace hydraulis
