#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "case_study.h"
#include "planner/policy.h"
#include "planner/verify_plan.h"

namespace hydraulis {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kContext = 32'768;

PolicySetup case_study_setup(const std::vector<Batch>& batches) {
  PolicySetup setup;
  setup.model = test::case_study_model();
  setup.set = test::case_study_set();
  setup.context = kContext;
  setup.batches = batches;
  return setup;
}

Batch trained_by(const BatchPlan& plan) {
  Batch batch;
  for (const PipelinePlan& pipeline : plan.pipelines) {
    for (const MicroBatch& micro_batch : pipeline.micro_batches) {
      batch.ids.insert(batch.ids.end(), micro_batch.sequence_ids.begin(),
                       micro_batch.sequence_ids.end());
      batch.lengths.insert(batch.lengths.end(), micro_batch.lengths.begin(),
                           micro_batch.lengths.end());
    }
  }
  return batch;
}

class Policies : public ::testing::TestWithParam<const char*> {};

TEST_P(Policies, EveryPlanVerifies) {
  for (const char* trace : {"web-gpt2", "github-gpt2"}) {
    const auto batches = test::case_study_batches(trace, 3);
    const auto policy = make_policy(GetParam(), case_study_setup(batches));
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const BatchPlan plan = policy->plan(std::span(batches).subspan(i));
      // Sequences of other iterations: tests/planner/policies/whole_runs_test.cpp.
      const Batch trained = policy->reorders_data() ? trained_by(plan) : batches[i];
      EXPECT_THAT(verify(plan, trained, policy->cost_model()), IsEmpty()) << trace;
      ASSERT_LT(static_cast<std::size_t>(plan.strategy), policy->strategies().size());
      const Strategy& strategy = policy->strategies()[static_cast<std::size_t>(plan.strategy)];
      Strategy last;
      for (const PipelinePlan& pipeline : plan.pipelines) {
        if (pipeline.phase + 1 == plan.phases()) last.push_back(pipeline.scheme);
      }
      EXPECT_EQ(last, strategy);
    }
  }
}

TEST_P(Policies, PlansRepeat) {
  const auto batches = test::case_study_batches("web-gpt2", 2);
  const auto setup = case_study_setup(batches);
  const BatchPlan once = make_policy(GetParam(), setup)->plan(batches);
  const BatchPlan again = make_policy(GetParam(), setup)->plan(batches);
  EXPECT_EQ(once.makespan_seconds, again.makespan_seconds);
  EXPECT_EQ(once.strategy, again.strategy);
}

std::vector<const char*> policy_names() {
  std::vector<const char*> names;
  for (const PolicyInfo& policy : policies()) names.push_back(policy.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Planner, Policies, ::testing::ValuesIn(policy_names()),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(PolicyRegistry, UnknownNameListsTheKnown) {
  try {
    make_policy("best", {});
    FAIL() << "expected InputError";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'best'"));
    for (const PolicyInfo& policy : policies()) {
      EXPECT_THAT(error.what(), HasSubstr(policy.name));
      EXPECT_FALSE(std::string(policy.summary).empty());
    }
  }
}

TEST(StaticPack, EveryPackIsPaddedToTheContext) {
  const auto batches = test::case_study_batches("web-gpt2", 3);
  const auto policy = make_policy("static-pack", case_study_setup(batches));
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const BatchPlan plan = policy->plan(std::span(batches).subspan(i));
    std::size_t most = 0;
    std::size_t fewest = SIZE_MAX;
    for (const PipelinePlan& pipeline : plan.pipelines) {
      for (const MicroBatch& pack : pipeline.micro_batches) {
        EXPECT_LE(pack.tokens(), kContext);
        EXPECT_EQ(pack.tokens() + pack.padding, kContext);
      }
      most = std::max(most, pipeline.micro_batches.size());
      fewest = std::min(fewest, pipeline.micro_batches.size());
    }
    EXPECT_LE(most, fewest + 1);  // dealt round robin
  }
}

TEST(StaticPad, RowsOfAMicroBatchAreAsLongAsItsLongest) {
  const auto batches = test::case_study_batches("web-gpt2", 1);
  const auto policy = make_policy("static-pad", case_study_setup(batches));
  for (const PipelinePlan& pipeline : policy->plan(batches).pipelines) {
    for (const MicroBatch& micro_batch : pipeline.micro_batches) {
      const std::uint64_t longest =
          *std::max_element(micro_batch.lengths.begin(), micro_batch.lengths.end());
      EXPECT_EQ(micro_batch.tokens() + micro_batch.padding, longest * micro_batch.lengths.size());
    }
  }
}

TEST(PolicyComparison, EachIdeaGains) {
  const auto batches = test::case_study_batches("web-gpt2", 4);
  const auto setup = case_study_setup(batches);
  const auto total = [&](const char* name) {
    const auto policy = make_policy(name, setup);
    double seconds = 0;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      seconds += policy->plan(std::span(batches).subspan(i)).makespan_seconds;
    }
    return seconds;
  };
  const double packed = total("static-pack");
  const double assigned = total("hydraulis-static");
  EXPECT_LT(assigned, packed);
  EXPECT_LT(total("hydraulis"), assigned);
}

TEST(StaticLayouts, ContextThatNoLayoutHoldsNamesTheNearest) {
  const auto batches = test::case_study_batches("web-gpt2", 1);
  PolicySetup setup = case_study_setup(batches);
  setup.context = 65'536;
  try {
    make_policy("static-pack", setup);
    FAIL() << "expected InfeasibleError";
  } catch (const InfeasibleError& error) {
    EXPECT_THAT(error.what(), HasSubstr("65536"));
    EXPECT_THAT(error.what(), HasSubstr("43520"));  // 4x(1,16,1)
    EXPECT_THAT(error.what(), HasSubstr("22016 fewer"));
  }
}

TEST(SequencesOf, LeavesOutEmptyOnes) {
  const auto sequences = sequences_of({{5, 6, 7}, {3, 0, 9}});
  ASSERT_EQ(sequences.size(), 2u);
  EXPECT_EQ(sequences[0].id, 5u);
  EXPECT_EQ(sequences[1].id, 7u);
  EXPECT_EQ(sequences[1].length, 9u);
}

}  // namespace
}  // namespace hydraulis
