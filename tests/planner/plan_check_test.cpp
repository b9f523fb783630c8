#include "planner/plan_check.h"

#include <gtest/gtest.h>

#include "planner/plan_build.h"

namespace hydraulis {
namespace {

PlanResult plan_with_cap(std::int64_t cap) {
  PlanRequest request;
  request.model = "llama-32b";
  request.cluster = "a800-64";
  request.context = 2048;
  request.max_tokens = cap;
  request.strategies = "4x(1,16,1)";
  return make_plan(request, nullptr);
}

TEST(PlanCheck, AnUntouchedPlanAgrees) {
  const PlanResult result = plan_with_cap(0);
  const PlanCheck check = check_plan(result.plan, result.model);
  EXPECT_EQ(check.max_tokens, 0);
  EXPECT_TRUE(check.disagreements.empty());
}

TEST(PlanCheck, ACapIsFoundAgain) {
  const PlanResult result = plan_with_cap(8192);
  const PlanCheck check = check_plan(result.plan, result.model);
  EXPECT_EQ(check.max_tokens, 8192);
  EXPECT_TRUE(check.disagreements.empty());
}

TEST(PlanCheck, FiguresThatAreNoCapAreNamed) {
  PlanResult result = plan_with_cap(0);
  SchemeOption& small = result.plan.schemes[4];  // not the roomiest, so this cannot be a cap
  const std::int64_t ours = small.max_tokens;
  ASSERT_GT(ours, 128);
  small.max_tokens = 128;
  PlanCheck check = check_plan(result.plan, result.model);
  EXPECT_EQ(check.max_tokens, 0);
  ASSERT_EQ(check.disagreements.size(), 1u);
  EXPECT_NE(check.disagreements[0].find("max_tokens is 128, the cost model gives " +
                                        std::to_string(ours)),
            std::string::npos)
      << check.disagreements[0];
  small.max_tokens = ours;
  small.cost.a *= 2;
  check = check_plan(result.plan, result.model);
  ASSERT_EQ(check.disagreements.size(), 1u);
  EXPECT_NE(check.disagreements[0].find("schemes[4]"), std::string::npos);
}

TEST(PlanCheck, ManyDisagreementsAreSummedUp) {
  PlanResult result = plan_with_cap(0);
  for (SchemeOption& option : result.plan.schemes) option.cost.c += 1;
  const PlanCheck check = check_plan(result.plan, result.model);
  ASSERT_EQ(check.disagreements.size(), 4u);
  EXPECT_EQ(check.disagreements.back(), "and " + std::to_string(result.plan.schemes.size() - 3) +
                                            " more figures of its schemes");
}

}  // namespace
}  // namespace hydraulis
