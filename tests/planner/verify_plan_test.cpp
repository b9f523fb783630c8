#include "planner/verify_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "case_study.h"
#include "planner/assignment.h"
#include "planner/pipeline_cost.h"
#include "planner/policy.h"
#include "planner/schedule.h"

namespace hydraulis {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class VerifyPlan : public ::testing::Test {
 protected:
  VerifyPlan()
      : model_(test::case_study_model()), batch_(test::case_study_batches("web-gpt2", 1).front()) {
    plan_ = assign(sequences_of(batch_), prepare(test::case_study_set(), model_));
  }

  std::vector<std::string> problems() const { return verify(plan_, batch_, model_); }

  /// Brings times and makespan into line again, so that only the planted fault is left.
  void retime() {
    plan_.makespan_seconds = 0;
    for (PipelinePlan& pipeline : plan_.pipelines) {
      pipeline.time_seconds =
          pipeline_makespan(make_pipeline_cost(model_, pipeline.scheme), pipeline.micro_batches);
      plan_.makespan_seconds = std::max(plan_.makespan_seconds, pipeline.time_seconds);
    }
    plan_.lower_bound_seconds = plan_.set_lower_bound_seconds = 0;
  }
  MicroBatch& first() {
    for (PipelinePlan& pipeline : plan_.pipelines) {
      for (MicroBatch& micro_batch : pipeline.micro_batches) {
        if (micro_batch.lengths.size() > 1) return micro_batch;
      }
    }
    throw std::logic_error("no micro-batch of two sequences");
  }

  CostModel model_;
  Batch batch_;
  BatchPlan plan_;
};

TEST_F(VerifyPlan, GoodPlanHasNoProblems) { EXPECT_THAT(problems(), IsEmpty()); }

TEST_F(VerifyPlan, MissingSequence) {
  const std::uint64_t id = first().sequence_ids.back();
  first().sequence_ids.pop_back();
  first().lengths.pop_back();
  retime();
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_EQ(problems()[0], fmt::format("sequence {} is placed 0 times", id));
}

TEST_F(VerifyPlan, DoubledSequence) {
  MicroBatch& micro_batch = first();
  const std::uint64_t id = micro_batch.sequence_ids.back();
  micro_batch.sequence_ids.push_back(id);
  micro_batch.lengths.push_back(micro_batch.lengths.back());
  retime();
  EXPECT_THAT(problems(), Contains(fmt::format("sequence {} is placed 2 times", id)));
}

TEST_F(VerifyPlan, SequenceOfAnotherBatch) {
  first().sequence_ids.back() = 999'999'999;
  EXPECT_THAT(problems(), Contains(HasSubstr("sequence 999999999 is not in the batch")));
}

TEST_F(VerifyPlan, WrongLength) {
  first().lengths.back() -= 1;
  retime();
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_THAT(problems()[0], HasSubstr(" tokens, not "));
}

TEST_F(VerifyPlan, IdsAndLengthsOfDifferentNumber) {
  first().lengths.pop_back();
  EXPECT_THAT(problems(), Contains(HasSubstr("ids and lengths differ in number")));
}

TEST_F(VerifyPlan, OverTheLimit) {
  first().padding += 1'000'000;
  retime();
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_THAT(problems()[0], HasSubstr("the limit is "));
}

TEST_F(VerifyPlan, OverTheCapGiven) {
  EXPECT_THAT(verify(plan_, batch_, model_, 64), Contains(HasSubstr("the limit is 64")));
}

TEST_F(VerifyPlan, WrongTime) {
  plan_.pipelines[0].time_seconds *= 1.0001;
  EXPECT_THAT(problems(), Contains(HasSubstr("pipeline 0: takes ")));
}

TEST_F(VerifyPlan, WrongMakespan) {
  plan_.makespan_seconds *= 1.0001;
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_THAT(problems()[0], HasSubstr("the makespan is "));
}

TEST_F(VerifyPlan, BoundsAboveTheMakespan) {
  plan_.lower_bound_seconds = plan_.makespan_seconds * 1.0001;
  EXPECT_THAT(problems(), Contains(HasSubstr("is above the makespan")));
  plan_.lower_bound_seconds = 0;
  EXPECT_THAT(problems(), IsEmpty());
  plan_.set_lower_bound_seconds = plan_.makespan_seconds * 1.0001;
  EXPECT_THAT(problems(), Contains(HasSubstr("is above the makespan")));
}

TEST_F(VerifyPlan, EmptyMicroBatch) {
  plan_.pipelines.back().micro_batches.emplace_back();
  retime();
  EXPECT_THAT(problems(), Contains(HasSubstr("is empty")));
}

TEST_F(VerifyPlan, OrderOfMicroBatchesMatters) {
  // On several stages the same micro-batches in another order take another time.
  StrategySet set{parse_strategies("8x(1,4,2)", "test"), {4, 16, 1}};
  Batch batch;
  for (std::uint64_t id = 0; id < 100; ++id) {
    batch.ids.push_back(id);
    batch.lengths.push_back(static_cast<std::uint32_t>(10 + 97 * id));
  }
  plan_ = assign(sequences_of(batch), prepare(set, model_));
  ASSERT_THAT(verify(plan_, batch, model_), IsEmpty());
  PipelinePlan& pipeline = plan_.pipelines[0];
  ASSERT_GT(pipeline.micro_batches.size(), 1u);
  std::rotate(pipeline.micro_batches.begin(), pipeline.micro_batches.begin() + 1,
              pipeline.micro_batches.end());
  const PipelineCost cost = make_pipeline_cost(model_, pipeline.scheme);
  ASSERT_GT(std::abs(pipeline_makespan(cost, pipeline.micro_batches) - pipeline.time_seconds),
            1e-6 * pipeline.time_seconds);
  EXPECT_THAT(verify(plan_, batch, model_), Contains(HasSubstr("pipeline 0: takes ")));
}

TEST(VerifyPlanPadding, ContextParallelismNeedsMultiplesOfTwiceItsRanks) {
  const CostModel model =
      make_cost_model(load_model("llama-7b"), load_cluster("h100-8"),
                      default_profile(load_model("llama-7b"), load_cluster("h100-8")),
                      MemoryModel::composed, {2, 4, 1});
  StrategySet set{parse_strategies("(2,4,1)", "test"), {2, 4, 1}};
  const Batch batch{{0, 1, 2, 3}, {4, 8, 6, 10}};
  BatchPlan plan = assign(sequences_of(batch), prepare(set, model));
  EXPECT_THAT(verify(plan, batch, model), IsEmpty());
  ASSERT_EQ(plan.pipelines[0].micro_batches.size(), 1u);
  EXPECT_EQ(plan.pipelines[0].micro_batches[0].padding, 4u);
  plan.pipelines[0].micro_batches[0].padding = 3;
  EXPECT_THAT(verify(plan, batch, model),
              Contains(HasSubstr("has 3 padding tokens, context parallelism needs 4")));
}

}  // namespace
}  // namespace hydraulis
