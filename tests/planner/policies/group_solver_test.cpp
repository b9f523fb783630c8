#include "planner/policies/group_solver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "base/random.h"

namespace hydraulis {
namespace {

/// Groups of 1, 2 and 4 units: work shared by the group, a constant each.
std::vector<GroupKind> kinds(std::int64_t tokens_a_unit) {
  std::vector<GroupKind> result;
  for (const int size : {1, 2, 4}) {
    result.push_back(
        {size, tokens_a_unit * size, {1e-6 / size, 1e-3 / size * (1 + 0.1 * size), 0.05}});
  }
  return result;
}

double seconds_of(const GroupKind& kind, const std::vector<std::uint32_t>& lengths) {
  double squares = 0, tokens = 0;
  for (const double s : lengths) {
    squares += s * s;
    tokens += s;
  }
  return kind.cost.of(squares, tokens);
}

/// The fastest solution there is: every list of group sizes within the units, every assignment.
double exhaustive(const std::vector<Sequence>& sequences, const std::vector<GroupKind>& kinds,
                  int units) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<std::size_t> groups;
  const std::function<void(std::size_t, int)> open = [&](std::size_t least, int left) {
    std::vector<std::size_t> to(sequences.size(), 0);
    while (!groups.empty()) {
      std::vector<std::vector<std::uint32_t>> held(groups.size());
      for (std::size_t i = 0; i < to.size(); ++i) held[to[i]].push_back(sequences[i].length);
      double slowest = 0;
      for (std::size_t g = 0; g < groups.size(); ++g) {
        std::int64_t tokens = 0;
        for (const std::uint32_t length : held[g]) tokens += length;
        if (tokens > kinds[groups[g]].max_tokens) slowest = best;
        if (!held[g].empty()) slowest = std::max(slowest, seconds_of(kinds[groups[g]], held[g]));
      }
      best = std::min(best, slowest);
      std::size_t i = 0;
      while (i < to.size() && ++to[i] == groups.size()) to[i++] = 0;
      if (i == to.size()) break;
    }
    for (std::size_t kind = least; kind < kinds.size(); ++kind) {
      if (kinds[kind].size > left) continue;
      groups.push_back(kind);
      open(kind, left - kinds[kind].size);
      groups.pop_back();
    }
  };
  open(0, units);
  return best;
}

TEST(GroupSolver, IsCloseToTheBestThereIs) {
  Random random(7);
  double worst = 1;
  double sum = 0;
  constexpr int kCases = 40;
  for (int i = 0; i < kCases; ++i) {
    std::vector<Sequence> sequences;
    for (std::uint64_t k = 0; k < 5; ++k) {
      sequences.push_back({k, static_cast<std::uint32_t>(20 + random.below(k == 0 ? 900 : 300))});
    }
    std::stable_sort(sequences.begin(), sequences.end(),
                     [](const Sequence& a, const Sequence& b) { return a.length > b.length; });
    const auto choices = kinds(300);
    const double best = exhaustive(sequences, choices, 4);
    const auto solved = solve_groups(sequences, choices, 4, true);
    if (best == std::numeric_limits<double>::infinity()) {
      EXPECT_FALSE(solved);
      continue;
    }
    ASSERT_TRUE(solved) << i;
    EXPECT_GE(solved->seconds, best * (1 - 1e-9));
    worst = std::max(worst, solved->seconds / best);
    sum += solved->seconds / best;
  }
  EXPECT_LT(worst, 1.6);
  EXPECT_LT(sum / kCases, 1.15);
}

TEST(GroupSolver, ALongSequenceTakesTheLargeGroupAndShortOnesStaySingle) {
  // 1,000 tokens fit four units alone; four units are left for the short ones.
  const std::vector<Sequence> sequences{{0, 1000}, {1, 200}, {2, 200}, {3, 200}, {4, 200}};
  const auto solved = solve_groups(sequences, kinds(300), 8, true);
  ASSERT_TRUE(solved);
  ASSERT_EQ(solved->groups.size(), 5u);
  EXPECT_EQ(solved->groups[0].kind, 2u);
  EXPECT_EQ(solved->groups[0].sequences, std::vector<int>{0});
  for (std::size_t g = 1; g < 5; ++g) EXPECT_EQ(solved->groups[g].kind, 0u);
}

TEST(GroupSolver, SerialGroupsTakeMoreThanOneMicroBatchHolds) {
  const std::vector<Sequence> sequences{{0, 300}, {1, 300}, {2, 300}};
  const auto choices = kinds(300);
  EXPECT_FALSE(solve_groups(sequences, choices, 1, true));
  const auto serial = solve_groups(sequences, choices, 1, false);
  ASSERT_TRUE(serial);
  EXPECT_EQ(serial->groups.front().sequences.size(), 3u);
}

TEST(GroupSolver, NothingHoldsTooLongASequence) {
  const std::vector<Sequence> sequences{{0, 1201}};
  EXPECT_FALSE(solve_groups(sequences, kinds(300), 8, false));
}

}  // namespace
}  // namespace hydraulis
