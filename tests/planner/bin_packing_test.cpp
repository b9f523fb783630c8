#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "linear_program.h"
#include "planner/packing.h"
#include "traces/length_trace.h"

namespace hydraulis {
namespace {

using Sizes = std::vector<std::int64_t>;

Sizes sizes_of(const std::string& file) {
  const LengthTrace trace = load_trace(std::string(HYDRAULIS_TEST_DATA "/lengths/") + file);
  return {trace.lengths.begin(), trace.lengths.end()};
}

std::size_t plain_first_fit_decreasing(Sizes sizes, std::int64_t capacity) {
  std::sort(sizes.rbegin(), sizes.rend());
  Sizes used;
  for (const std::int64_t size : sizes) {
    const auto bin = std::find_if(used.begin(), used.end(),
                                  [&](std::int64_t u) { return u + size <= capacity; });
    if (bin == used.end()) {
      used.push_back(size);
    } else {
      *bin += size;
    }
  }
  return used.size();
}

/// Every item once, no bin above capacity, none empty.
void expect_valid(const std::vector<std::vector<int>>& bins, const Sizes& sizes,
                  std::int64_t capacity) {
  std::vector<int> seen(sizes.size(), 0);
  for (const auto& bin : bins) {
    ASSERT_FALSE(bin.empty());
    std::int64_t sum = 0;
    for (const int item : bin) {
      ASSERT_GE(item, 0);
      ASSERT_LT(static_cast<std::size_t>(item), sizes.size());
      ++seen[static_cast<std::size_t>(item)];
      sum += sizes[static_cast<std::size_t>(item)];
    }
    ASSERT_LE(sum, capacity);
  }
  for (const int times : seen) ASSERT_EQ(times, 1);
}

/// Fewest bins by a mixed-integer program.
int fewest_bins(const Sizes& sizes, std::int64_t capacity) {
  test::LinearProgram program;
  std::vector<test::LinearProgram::Row> placed(sizes.size());
  int before = -1;
  for (std::size_t bin = 0; bin < sizes.size(); ++bin) {
    const int used = program.add_binary(1);
    test::LinearProgram::Row load{{used, -static_cast<double>(capacity)}};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const int here = program.add_binary();
      load.emplace_back(here, static_cast<double>(sizes[i]));
      placed[i].emplace_back(here, 1.0);
    }
    program.add_row(std::move(load), -test::LinearProgram::kFree, 0);
    if (before >= 0) {
      program.add_row({{before, 1.0}, {used, -1.0}}, 0, test::LinearProgram::kFree);
    }
    before = used;
  }
  for (auto& row : placed) program.add_row(std::move(row), 1, 1);
  const auto solution = program.minimise();
  EXPECT_TRUE(solution.optimal);
  return static_cast<int>(std::lround(solution.objective));
}

TEST(BinPacking, SequencesCannotBeSplit) {
  const Sizes sevens = sizes_of("eight_sevens_cap8.txt");
  const auto eight = pack_fewest_bins(sevens, 8);
  EXPECT_EQ(eight.size(), 8u);
  expect_valid(eight, sevens, 8);
  const Sizes large = sizes_of("sixteen_30720_cap32768.txt");
  const auto sixteen = pack_fewest_bins(large, 32768);
  EXPECT_EQ(sixteen.size(), 16u);
  expect_valid(sixteen, large, 32768);
}

TEST(BinPacking, OnePartialPackIsFine) {
  EXPECT_EQ(pack_fewest_bins(sizes_of("single_one.txt"), 4096).size(), 1u);
  EXPECT_EQ(pack_fewest_bins(Sizes{10, 20}, 4096).size(), 1u);
  EXPECT_TRUE(pack_fewest_bins({}, 4096).empty());
  EXPECT_EQ(bins_lower_bound({}, 4096), 0);
}

TEST(BinPacking, ItemsOfTheWholeCapacity) {
  const Sizes sizes(5, 64);
  const auto bins = pack_fewest_bins(sizes, 64);
  EXPECT_EQ(bins.size(), 5u);
  expect_valid(bins, sizes, 64);
  EXPECT_EQ(bins_lower_bound(sizes, 64), 5);
}

TEST(BinPacking, NeverMoreBinsThanFirstFitDecreasingAndNeverBelowTheBound) {
  Random random(3);
  for (int round = 0; round < 400; ++round) {
    const auto capacity = static_cast<std::int64_t>(10 + random.below(5000));
    const std::size_t count = 1 + random.below(120);
    // Small, large and mixed items.
    const std::int64_t largest =
        round % 3 == 0 ? std::max<std::int64_t>(1, capacity / 3) : capacity;
    const std::int64_t least = round % 5 == 0 ? std::max<std::int64_t>(1, largest / 4) : 1;
    Sizes sizes;
    for (std::size_t i = 0; i < count; ++i) {
      sizes.push_back(least + static_cast<std::int64_t>(
                                  random.below(static_cast<std::uint64_t>(largest - least + 1))));
    }
    const auto bins = pack_fewest_bins(sizes, capacity);
    expect_valid(bins, sizes, capacity);
    EXPECT_LE(bins.size(), plain_first_fit_decreasing(sizes, capacity));
    EXPECT_GE(static_cast<std::int64_t>(bins.size()), bins_lower_bound(sizes, capacity));
  }
}

TEST(BinPacking, BeatsFirstFitDecreasingWhereSubsetSumsDo) {
  const Sizes sizes{70, 56, 51, 30, 27, 23, 22, 21};  // three full bins
  const std::int64_t capacity = 100;
  const auto bins = pack_fewest_bins(sizes, capacity);
  expect_valid(bins, sizes, capacity);
  EXPECT_EQ(plain_first_fit_decreasing(sizes, capacity), 4u);
  EXPECT_EQ(fewest_bins(sizes, capacity), 3);
  EXPECT_EQ(bins.size(), 3u);
}

TEST(BinPacking, BoundAndHeuristicAgainstExactSolver) {
  Random random(4);
  int optimal = 0;
  constexpr int kRounds = 25;
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t capacity = 60;
    Sizes sizes;
    const std::size_t count = 3 + random.below(6);
    for (std::size_t i = 0; i < count; ++i) {
      sizes.push_back(5 + static_cast<std::int64_t>(random.below(40)));
    }
    const int exact = fewest_bins(sizes, capacity);
    EXPECT_LE(bins_lower_bound(sizes, capacity), exact);
    const auto found = static_cast<int>(pack_fewest_bins(sizes, capacity).size());
    EXPECT_GE(found, exact);
    EXPECT_LE(found, exact + 1);
    optimal += found == exact ? 1 : 0;
  }
  EXPECT_GE(optimal, kRounds - 2);
}

TEST(BinPacking, ManyItemsJustOverHalf) {
  for (const std::size_t count : {20'000u, 1'000'000u}) {
    const Sizes sizes(count, 513);
    const auto bins = pack_fewest_bins(sizes, 1024);
    EXPECT_EQ(bins.size(), count);
    EXPECT_EQ(bins_lower_bound(sizes, 1024), static_cast<std::int64_t>(count));
  }
}

TEST(BinPacking, AMillionMixedItems) {
  Random random(6);
  Sizes sizes;
  for (int i = 0; i < 1'000'000; ++i) {
    sizes.push_back(1 + static_cast<std::int64_t>(4096 * random.uniform() * random.uniform()));
  }
  const auto bins = pack_fewest_bins(sizes, 4096);
  expect_valid(bins, sizes, 4096);
  const auto bound = static_cast<double>(bins_lower_bound(sizes, 4096));
  EXPECT_LE(static_cast<double>(bins.size()), bound * 1.02);
}

TEST(BinPacking, SharesAreMetWithinTheLargestItem) {
  Random random(8);
  Sizes sizes;
  std::vector<double> weights;
  for (int i = 0; i < 200; ++i) {
    sizes.push_back(1 + static_cast<std::int64_t>(random.below(50)));
    weights.push_back(static_cast<double>(sizes.back()));
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const std::vector<double> shares{0.1, 0.2, 0.3, 0.4};
  const auto bins = pack_to_shares(sizes, weights, 10'000, shares);
  ASSERT_EQ(bins.size(), shares.size());
  expect_valid(bins, sizes, 10'000);
  for (std::size_t bin = 0; bin < bins.size(); ++bin) {
    double sum = 0;
    for (const int item : bins[bin]) sum += weights[static_cast<std::size_t>(item)];
    EXPECT_NEAR(sum, total * shares[bin], 50);
  }
}

TEST(BinPacking, SharesWithoutRoomGiveNothing) {
  EXPECT_TRUE(pack_to_shares(Sizes{60, 60, 60}, std::vector<double>{60, 60, 60}, 100,
                             std::vector<double>{0.5, 0.5})
                  .empty());
}

}  // namespace
}  // namespace hydraulis
