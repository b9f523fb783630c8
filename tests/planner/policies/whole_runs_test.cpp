// What every policy owes, on the published case study.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "planner/policy.h"
#include "planner/program/lower.h"
#include "planner/program/program_json.h"
#include "planner/program/verify.h"
#include "tests/planner/case_study.h"

namespace hydraulis {
namespace {

using ::testing::IsEmpty;

constexpr int kIterations = 4;

PolicySetup case_study_setup(const std::vector<Batch>& batches) {
  PolicySetup setup;
  setup.model = test::case_study_model();
  setup.set = test::case_study_set();
  setup.context = 32'768;
  setup.batches = batches;
  setup.assignment.count_parameter_traffic = true;
  setup.switch_seconds = 1;
  return setup;
}

std::vector<BatchPlan> plan_run(Policy& policy, const std::vector<Batch>& batches) {
  std::vector<BatchPlan> plans;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const std::size_t seen = std::min(policy.lookahead() + 1, batches.size() - i);
    plans.push_back(policy.plan(std::span(batches).subspan(i, seen)));
  }
  return plans;
}

class WholeRuns : public ::testing::TestWithParam<const char*> {};

TEST_P(WholeRuns, EverySequenceIsTrainedOnceAndEveryProgramVerifies) {
  const auto batches = test::case_study_batches("web-gpt2", kIterations);
  const auto policy = make_policy(GetParam(), case_study_setup(batches));
  std::map<std::uint64_t, std::uint32_t> drawn;
  for (const Batch& batch : batches) {
    for (std::size_t i = 0; i < batch.ids.size(); ++i) {
      if (batch.lengths[i] > 0) drawn[batch.ids[i]] = batch.lengths[i];
    }
  }
  std::map<std::uint64_t, std::uint32_t> trained;
  bool delayed = false;
  const auto plans = plan_run(*policy, batches);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Program program = lower(plans[i], policy->cost_model());
    EXPECT_THAT(verify(program, policy->cost_model()), IsEmpty()) << i;
    for (const PipelineProgram& pipeline : program.pipelines) {
      for (const MicroBatch& micro_batch : pipeline.micro_batches) {
        for (std::size_t k = 0; k < micro_batch.lengths.size(); ++k) {
          const std::uint64_t id = micro_batch.sequence_ids[k];
          EXPECT_TRUE(trained.emplace(id, micro_batch.lengths[k]).second) << id << " twice";
          delayed |=
              std::find(batches[i].ids.begin(), batches[i].ids.end(), id) == batches[i].ids.end();
        }
      }
    }
  }
  EXPECT_EQ(trained, drawn);
  EXPECT_EQ(delayed, policy->reorders_data());
}

std::vector<const char*> policy_names() {
  std::vector<const char*> names;
  for (const PolicyInfo& policy : policies()) names.push_back(policy.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Planner, WholeRuns, ::testing::ValuesIn(policy_names()),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(AllPolicies, NoTwoLowerAlike) {
  const auto batches = test::case_study_batches("web-gpt2", 5);
  std::map<std::string, std::string> met;  // program → policy
  for (const PolicyInfo& info : policies()) {
    PolicySetup setup = case_study_setup(batches);
    setup.switch_seconds = 100;  // never pays
    const auto policy = make_policy(info.name, setup);
    std::string programs;
    for (const BatchPlan& plan : plan_run(*policy, batches)) {
      programs += program_to_json(lower(plan, policy->cost_model())).dump();
    }
    const auto [before, is_new] = met.emplace(std::move(programs), info.name);
    EXPECT_TRUE(is_new) << info.name << " and " << before->second;
  }
}

}  // namespace
}  // namespace hydraulis
