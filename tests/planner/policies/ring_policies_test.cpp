// Policies whose rings change while parameters stay: dynamic context parallelism and ByteScale.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "planner/policies/policies.h"
#include "planner/program/lower.h"
#include "planner/program/verify.h"
#include "planner/verify_plan.h"
#include "tests/planner/policies/small_setup.h"

namespace hydraulis {
namespace {

using test::batch_of;
using test::row;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Eight devices that hold some 7,800 tokens each.
PolicySetup setup(std::int64_t context, std::span<const Batch> batches, int devices = 8) {
  PolicySetup result = test::small_setup(devices, context, {row(1, 1, 1e-7, 1e-3, 0.01)}, batches);
  result.model.cluster.intra_node = {1e9, 1e-6};
  return result;
}

void expect_sound(const Policy& policy, const BatchPlan& plan, const Batch& batch) {
  EXPECT_THAT(verify(plan, batch, policy.cost_model()), IsEmpty());
  EXPECT_THAT(verify(lower(plan, policy.cost_model()), policy.cost_model(), &batch), IsEmpty());
}

int ring_of(const BatchPlan& plan, std::uint32_t length) {
  for (const PipelinePlan& pipeline : plan.pipelines) {
    for (const MicroBatch& micro_batch : pipeline.micro_batches) {
      if (micro_batch.lengths.front() == length) return pipeline.scheme.cp;
    }
  }
  return 0;
}

TEST(ByteScale, ASequenceTakesAsManyRanksAsItNeeds) {
  // 20,000 tokens need three ranks of 7,800.
  const std::vector<Batch> three = {batch_of({20'000, 100})};
  EXPECT_EQ(ring_of(make_bytescale(setup(20'000, three, 3))->plan(three), 20'000), 3);
  // Of eight, the long one shares a ring of four with a short one: 18 s; on three alone it
  // takes 20.
  const std::vector<Batch> batches = {batch_of({20'000, 7000, 7000, 7000, 7000, 7000})};
  const auto policy = make_bytescale(setup(20'000, batches));
  const BatchPlan plan = policy->plan(batches);
  EXPECT_EQ(ring_of(plan, 20'000), 4);
  EXPECT_NEAR(plan.makespan_seconds, 18, 0.5);
  EXPECT_EQ(plan.phases(), 1);
  int ranks = 0;
  for (const PipelinePlan& pipeline : plan.pipelines) ranks += pipeline.scheme.cp;
  EXPECT_EQ(ranks, 8);
  expect_sound(*policy, plan, batches[0]);
}

TEST(DynamicCp, RingsArePowersOfTwoAndRoundsFollowOneAnother) {
  const std::vector<Batch> batches = {
      batch_of({20'000, 18'000, 17'000, 7000, 7000, 7000, 300, 200, 100})};
  const auto policy = make_dynamic_cp(setup(20'000, batches));
  const BatchPlan plan = policy->plan(batches);
  EXPECT_EQ(ring_of(plan, 20'000), 4);
  // Two rings of four fit at once, the third long sequence runs in another round.
  EXPECT_GT(plan.phases(), 1);
  for (const PipelinePlan& pipeline : plan.pipelines) {
    EXPECT_EQ(pipeline.scheme.cp & (pipeline.scheme.cp - 1), 0);
  }
  expect_sound(*policy, plan, batches[0]);
  // Parameters and gradients stay on their devices between rounds.
  const Program program = lower(plan, policy->cost_model());
  for (const Stage& stage : program.stages) {
    const int phase = program.pipelines[stage.pipeline].phase;
    for (const Instruction& i : stage.instructions) {
      const bool moves = i.intra_node_bytes + i.inter_node_bytes > 0;
      if (i.op == Op::gather_parameters && phase > 0) {
        EXPECT_FALSE(moves);
      }
      if (i.op == Op::reduce_gradients && phase + 1 < plan.phases()) {
        EXPECT_FALSE(moves);
      }
    }
  }
}

TEST(RingRanks, ContextThatNoRingHoldsNamesTheLongest) {
  const std::vector<Batch> batches = {batch_of({100})};
  for (const auto make : {make_dynamic_cp, make_bytescale}) {
    try {
      make(setup(200'000, batches));
      FAIL() << "expected InfeasibleError";
    } catch (const InfeasibleError& error) {
      EXPECT_THAT(error.what(), HasSubstr("200000"));
      EXPECT_THAT(error.what(), HasSubstr("the longest is 6"));  // 8 x 7,800
    }
  }
}

}  // namespace
}  // namespace hydraulis
