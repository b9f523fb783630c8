#include "planner/plan_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace hydraulis {
namespace {

constexpr double kTolerance = 1e-6;
constexpr std::size_t kMostLines = 4;

/// A scheme of the plan beside the same one as the cost model has it.
struct Pair {
  std::string name;
  SchemeOption planned;
  SchemeOption ours;
};

bool differ(double a, double b) {
  return std::abs(a - b) > kTolerance * std::max(std::abs(a), std::abs(b));
}

bool differ(const StageCost& a, const StageCost& b) {
  return differ(a.a, b.a) || differ(a.b, b.b) || differ(a.c, b.c);
}

/// A plan made with a cap has the cap as the longest micro-batch of every scheme that holds more.
/// 0 when the figures are no cap's.
std::int64_t cap_of(const std::vector<Pair>& pairs) {
  std::int64_t cap = 0;
  for (const Pair& pair : pairs) {
    if (pair.planned.max_tokens < pair.ours.max_tokens) {
      cap = std::max(cap, pair.planned.max_tokens);
    }
  }
  const bool holds = std::all_of(pairs.begin(), pairs.end(), [cap](const Pair& pair) {
    return pair.planned.max_tokens == std::min(cap, pair.ours.max_tokens);
  });
  return holds ? cap : 0;
}

}  // namespace

PlanCheck check_plan(const Plan& plan, const CostModel& model) {
  PlanCheck check;
  const std::vector<SchemeOption> known = scheme_options(model);
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < plan.schemes.size(); ++i) {
    const SchemeOption& planned = plan.schemes[i];
    const std::string name = fmt::format("schemes[{}] {}", i, to_string(planned.scheme));
    const auto ours = std::find_if(known.begin(), known.end(), [&](const SchemeOption& other) {
      return other.scheme == planned.scheme;
    });
    if (ours != known.end()) {
      pairs.push_back({name, planned, *ours});
    } else {
      check.disagreements.push_back(
          fmt::format("{}: profile {} does not know it", name, model.profile.name));
    }
  }
  check.max_tokens = cap_of(pairs);
  for (const Pair& pair : pairs) {
    if (differ(pair.planned.cost, pair.ours.cost)) {
      check.disagreements.push_back(
          fmt::format("{}: its times are not those of profile {}, which are used", pair.name,
                      model.profile.name));
    }
    if (check.max_tokens == 0 && pair.planned.max_tokens != pair.ours.max_tokens) {
      check.disagreements.push_back(
          fmt::format("{}: max_tokens is {}, the cost model gives {}, which is used", pair.name,
                      pair.planned.max_tokens, pair.ours.max_tokens));
    }
  }
  if (check.disagreements.size() > kMostLines) {
    const std::size_t more = check.disagreements.size() - (kMostLines - 1);
    check.disagreements.resize(kMostLines - 1);
    check.disagreements.push_back(fmt::format("and {} more figures of its schemes", more));
  }
  return check;
}

}  // namespace hydraulis
