#include "planner/proposal_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/random.h"

namespace hydraulis {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

Scheme scheme(int group, int tp, int pp) {
  Scheme result;
  result.tp = tp;
  result.pp = pp;
  result.group = group;
  return result;
}

double cost(const GroupProblem& given, const SchemeOption& option, std::int64_t from,
            std::int64_t to) {
  double sum = 0;
  double longest = 0;
  for (const LengthCount& entry : given.problem.histogram) {
    if (entry.length <= from || entry.length > to) continue;
    const auto s = static_cast<double>(entry.length);
    sum += entry.count * (option.cost.of_sequence(s) + option.cost.c);
    longest = std::max(longest, s);
  }
  if (longest == 0) return 0;
  return sum + (option.scheme.pp - 1) * (option.cost.of_sequence(longest) + option.cost.c);
}

/// Every way to cut the lengths at the grid's points and to give the parts to schemes.
double exhaustive(const GroupProblem& given, const std::vector<std::int64_t>& grid, std::size_t s,
                  std::vector<int> devices) {
  if (s == 0) return 0;
  double best = kNever;
  for (const SchemeOption& option : given.problem.schemes) {
    if (option.max_tokens < grid[s]) continue;
    const auto group = static_cast<std::size_t>(option.scheme.group);
    for (std::size_t from = 0; from < s; ++from) {
      const double seconds = cost(given, option, grid[from], grid[s]);
      std::vector<int> left = devices;
      for (int d = 1; left[group] >= option.scheme.devices(); ++d) {
        left[group] -= option.scheme.devices();
        best = std::min(best, std::max(seconds / d, exhaustive(given, grid, from, left)));
      }
    }
  }
  return best;
}

TEST(ProposalGroups, IsTheBestOfAllCutsAndSchemes) {
  Random random(5);
  for (int round = 0; round < 60; ++round) {
    GroupProblem given;
    given.tolerance = 1e-9;
    given.group_devices = {1 + static_cast<int>(random.below(3)),
                           2 + static_cast<int>(random.below(3))};
    if (round % 3 == 0) given.group_devices.push_back(1 + static_cast<int>(random.below(2)));
    given.problem.context = 512;
    const std::vector<std::int64_t> grid = {0, 128, 256, 384, 512};
    for (int i = 0; i < 5; ++i) {
      given.problem.histogram.push_back({1 + static_cast<std::int64_t>(random.below(512)),
                                         static_cast<double>(1 + random.below(5))});
    }
    for (int g = 0; g < static_cast<int>(given.group_devices.size()); ++g) {
      const double speed = 0.5 + random.uniform();
      for (const auto& [tp, pp, tokens] : {std::tuple{1, 1, 256}, {2, 1, 512}, {1, 2, 384}}) {
        const double share = speed / (tp * pp);
        given.problem.schemes.push_back({scheme(g, tp, pp), {1e-3 * share, share, share}, tokens});
      }
    }
    int all = 0;
    for (const int devices : given.group_devices) all += devices;
    given.problem.devices = all;
    given.problem.optimizer = {all, 1, 1};
    const auto solutions = solve_groups_grid(given);
    for (std::size_t s = 1; s < grid.size(); ++s) {
      const double best = exhaustive(given, grid, s, given.group_devices);
      if (best == kNever) {
        EXPECT_LT(solutions.size(), s);
        continue;
      }
      ASSERT_GE(solutions.size(), s);
      EXPECT_EQ(solutions[s - 1].upto, grid[s]);
      EXPECT_NEAR(solutions[s - 1].bottleneck_seconds, best, 1e-7 * best) << round << ' ' << s;
      std::vector<int> used(given.group_devices.size(), 0);
      for (const LengthInterval& interval : solutions[s - 1].intervals) {
        const Scheme& own = given.problem.schemes[static_cast<std::size_t>(interval.scheme)].scheme;
        used[static_cast<std::size_t>(own.group)] += interval.replicas * own.devices();
      }
      for (std::size_t g = 0; g < used.size(); ++g) EXPECT_LE(used[g], given.group_devices[g]);
    }
  }
}

TEST(ProposalGroups, StrategiesUseEveryGroupsDevicesAndTheFirstHoldsTheContext) {
  GroupProblem given;
  given.group_devices = {8, 16};
  given.problem.devices = 24;
  given.problem.context = 4096;
  given.problem.histogram = {{100, 50}, {1000, 5}, {4000, 1}};
  given.problem.schemes = {{scheme(0, 4, 1), {1e-9, 1e-5, 1e-3}, 2048},
                           {scheme(0, 8, 1), {1e-9, 0.6e-5, 1e-3}, 4096},
                           {scheme(1, 2, 1), {1e-9, 1e-5, 1e-3}, 1024}};
  const std::vector<Strategy> strategies = propose_over_groups(given);
  ASSERT_GE(strategies.size(), 2u);
  EXPECT_NE(std::ranges::find(strategies.front(), scheme(0, 8, 1)), strategies.front().end());
  for (const Strategy& strategy : strategies) {
    int used[2] = {};
    for (const Scheme& own : strategy) used[own.group] += own.devices();
    EXPECT_EQ(used[0], 8) << to_string(strategy);
    EXPECT_EQ(used[1], 16) << to_string(strategy);
  }
  given.problem.context = 8192;
  try {
    propose_over_groups(given);
    ADD_FAILURE() << "expected an error";
  } catch (const InfeasibleError& error) {
    EXPECT_NE(std::string(error.what()).find("4096"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hydraulis
