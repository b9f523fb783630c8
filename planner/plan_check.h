#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/plan_json.h"

namespace hydraulis {

/// How the schemes of a plan file stand to the cost model that is used with it.
struct PlanCheck {
  /// The cap on a micro-batch that the plan was made with, tokens; 0: none.
  std::int64_t max_tokens = 0;
  /// One line for each scheme whose figures are not the cost model's (an edited plan, or a profile
  /// that has changed since).
  std::vector<std::string> disagreements;
};

PlanCheck check_plan(const Plan& plan, const CostModel& model);

}  // namespace hydraulis
