#include "sim/fair_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace hydraulis {
namespace {

using Uses = std::vector<ResourceUse>;

std::vector<std::uint32_t> settled(FairShare& share) {
  std::vector<std::uint32_t> changed;
  share.settle([&](std::uint32_t activity) { changed.push_back(activity); });
  return changed;
}

TEST(FairShare, WhatNothingLimitsRunsAtFullSpeed) {
  FairShare share({2}, 3);
  const Uses one = {{0, 1}};
  share.start(0, one);
  share.start(1, one);
  share.start(2, {});
  EXPECT_EQ(settled(share), (std::vector<std::uint32_t>{0, 1, 2}));
  for (const std::uint32_t activity : {0u, 1u, 2u}) EXPECT_EQ(share.rate(activity), 1);
  EXPECT_TRUE(settled(share).empty());
}

TEST(FairShare, WhatUsesNothingStartsByItself) {
  FairShare share({1}, 2);
  const Uses nothing = {{0, 0}};
  share.start(1, nothing);
  EXPECT_EQ(settled(share), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(share.rate(1), 1);
}

TEST(FairShare, EqualsShareEquallyAndSpeedUpWhenOneLeaves) {
  FairShare share({2}, 4);
  const Uses one = {{0, 1}};
  for (const std::uint32_t activity : {0u, 1u, 2u, 3u}) share.start(activity, one);
  settled(share);
  for (const std::uint32_t activity : {0u, 1u, 2u, 3u}) EXPECT_EQ(share.rate(activity), 0.5);
  share.end(2);
  EXPECT_EQ(settled(share), (std::vector<std::uint32_t>{0, 1, 3}));
  EXPECT_DOUBLE_EQ(share.rate(0), 2.0 / 3);
}

// Three flows over two links of capacity 1: the one over both gets a third of the crowded link, as
// the others there do, and the lone flow of the second link takes what is left.
TEST(FairShare, WhatABottleneckLeavesGoesToOthers) {
  FairShare share({1, 1}, 4);
  const Uses both = {{0, 1}, {1, 1}};
  const Uses first = {{0, 1}};
  const Uses second = {{1, 1}};
  share.start(0, both);
  share.start(1, first);
  share.start(2, first);
  share.start(3, second);
  settled(share);
  EXPECT_DOUBLE_EQ(share.rate(0), 1.0 / 3);
  EXPECT_DOUBLE_EQ(share.rate(1), 1.0 / 3);
  EXPECT_DOUBLE_EQ(share.rate(2), 1.0 / 3);
  EXPECT_DOUBLE_EQ(share.rate(3), 2.0 / 3);
}

TEST(FairShare, OthersAreNotLookedAtAgain) {
  FairShare share({1, 1}, 4);
  const Uses first = {{0, 1}};
  const Uses second = {{1, 1}};
  share.start(0, first);
  share.start(1, second);
  settled(share);
  share.start(2, second);
  EXPECT_EQ(settled(share), (std::vector<std::uint32_t>{1, 2}));
  share.end(1);
  share.start(3, second);
  EXPECT_EQ(settled(share), (std::vector<std::uint32_t>{3}));  // 2 keeps its half
}

TEST(FairShare, AResourceWithoutCapacityIsRefused) { EXPECT_THROW(FairShare({1, 0}, 1), Error); }

// The definition itself, on random instances with arrivals and departures: no resource beyond its
// capacity, and whoever runs below full speed uses a full resource on which nobody is faster.
TEST(FairShare, RandomInstancesKeepTheDefinition) {
  Random random(std::random_device{}());
  for (int trial = 0; trial < 200; ++trial) {
    const std::size_t resources = 1 + random.next() % 6;
    std::vector<double> capacities;
    for (std::size_t r = 0; r < resources; ++r) capacities.push_back(0.1 + 3 * random.uniform());
    std::vector<Uses> uses(30);
    for (Uses& of : uses) {
      for (std::uint32_t r = 0; r < resources; ++r) {
        if (random.next() % 3 == 0)
          of.push_back({r, random.next() % 7 == 0 ? 0 : random.uniform()});
      }
    }
    FairShare share(capacities, uses.size());
    std::vector<double> limits(uses.size(), 1);
    for (std::uint32_t a = 0; a < uses.size(); ++a) {
      if (random.next() % 3 == 0) share.limit(a, limits[a] = 0.05 + 0.95 * random.uniform());
    }
    std::map<std::uint32_t, bool> running;
    for (int change = 0; change < 60; ++change) {
      const auto activity = static_cast<std::uint32_t>(random.next() % uses.size());
      if (running[activity]) {
        share.end(activity);
      } else {
        share.start(activity, uses[activity]);
      }
      running[activity] = !running[activity];
      settled(share);
      std::vector<double> used(resources);
      std::vector<double> fastest(resources);
      for (const auto& [a, runs] : running) {
        if (!runs) continue;
        for (const ResourceUse& use : uses[a]) {
          used[use.resource] += use.amount * share.rate(a);
          if (use.amount > 0)
            fastest[use.resource] = std::max(fastest[use.resource], share.rate(a));
        }
      }
      for (std::size_t r = 0; r < resources; ++r) ASSERT_LE(used[r], capacities[r] * (1 + 1e-9));
      for (const auto& [a, runs] : running) {
        if (!runs) continue;
        ASSERT_LE(share.rate(a), limits[a]);
        if (share.rate(a) == limits[a]) continue;
        const bool justified =
            std::any_of(uses[a].begin(), uses[a].end(), [&](const ResourceUse& use) {
              return use.amount > 0 && used[use.resource] > capacities[use.resource] * (1 - 1e-9) &&
                     share.rate(a) > fastest[use.resource] * (1 - 1e-9);
            });
        ASSERT_TRUE(justified) << "activity " << a << " at " << share.rate(a);
      }
    }
  }
}

// Many of a kind are as many kinds that use the same.
TEST(FairShare, ManyOfAKind) {
  Random random(5);
  for (int trial = 0; trial < 100; ++trial) {
    constexpr std::uint32_t kKinds = 5;
    constexpr std::uint32_t kMost = 4;
    std::vector<double> capacities;
    for (int r = 0; r < 4; ++r) capacities.push_back(0.1 + 5 * random.uniform());
    std::vector<Uses> uses(kKinds);
    for (Uses& of : uses) {
      for (std::uint32_t r = 0; r < 4; ++r) {
        if (random.next() % 2 == 0) of.push_back({r, 0.1 + random.uniform()});
      }
    }
    FairShare kinds(capacities, kKinds);
    FairShare each(capacities, kKinds * kMost);
    std::vector<std::uint32_t> running(kKinds);
    for (int change = 0; change < 40; ++change) {
      const auto kind = static_cast<std::uint32_t>(random.next() % kKinds);
      if (running[kind] == kMost || (running[kind] > 0 && random.next() % 2 == 0)) {
        kinds.end(kind);
        each.end(kind * kMost + --running[kind]);
      } else {
        kinds.start(kind, uses[kind]);
        each.start(kind * kMost + running[kind]++, uses[kind]);
      }
      if (random.next() % 3 == 0) continue;  // several changes at once
      settled(kinds);
      settled(each);
      for (std::uint32_t k = 0; k < kKinds; ++k) {
        for (std::uint32_t i = 0; i < running[k]; ++i) {
          ASSERT_NEAR(kinds.rate(k), each.rate(k * kMost + i), 1e-9) << "kind " << k;
        }
      }
    }
  }
}

// Two on a link of 1; one may have no more than 0.2 of it, so the other has 0.8.
TEST(FairShare, WhatALimitLeavesGoesToOthers) {
  FairShare share({1}, 2);
  share.limit(0, 0.2);
  const Uses one = {{0, 1}};
  share.start(0, one);
  EXPECT_EQ(settled(share), (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(share.rate(0), 0.2);
  share.start(1, one);
  EXPECT_EQ(settled(share), (std::vector<std::uint32_t>{1}));
  EXPECT_DOUBLE_EQ(share.rate(1), 0.8);
}

TEST(FairShare, AKindThatEndsAndStartsAgainAtOnce) {
  FairShare share({1}, 2);
  const Uses one = {{0, 1}};
  share.start(0, one);
  share.start(1, one);
  settled(share);
  share.end(0);
  share.start(0, one);
  share.end(1);
  EXPECT_EQ(settled(share), (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(share.rate(0), 1);
  share.end(0);
  share.start(0, one);
  share.start(0, one);
  settled(share);
  EXPECT_EQ(share.rate(0), 0.5);
}

}  // namespace
}  // namespace hydraulis
