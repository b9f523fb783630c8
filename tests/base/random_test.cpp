#include "base/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

namespace hydraulis {
namespace {

constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();

std::vector<std::uint64_t> draw(Random random, int count) {
  std::vector<std::uint64_t> values;
  for (int i = 0; i < count; ++i) values.push_back(random.next());
  return values;
}

// The first outputs of xoshiro256** from the state {1, 2, 3, 4}, as other implementations of the
// generator publish them for their own tests.
TEST(Random, FollowsTheReferenceSequence) {
  Random random;
  random.set_state({1, 2, 3, 4});
  const std::vector<std::uint64_t> expected = {11520u,
                                               0u,
                                               1509978240u,
                                               1215971899390074240u,
                                               1216172134540287360u,
                                               607988272756665600u,
                                               16172922978634559625u,
                                               8476171486693032832u,
                                               10595114339597558777u,
                                               2904607092377533576u};
  EXPECT_EQ(draw(random, 10), expected);
}

// From an independent implementation (Python integers) of the seeding and the generator.
TEST(Random, SeedsAndStreamsAreFixedForever) {
  using Values = std::vector<std::uint64_t>;
  EXPECT_EQ(draw(Random(0), 3),
            (Values{18110106563157542208u, 8650457082529208451u, 3032169436225125478u}));
  EXPECT_EQ(draw(Random(42), 3),
            (Values{1865750160070900731u, 6791145067590612263u, 14118064813682728970u}));
  EXPECT_EQ(draw(Random(42, 7), 3),
            (Values{7094150420702097787u, 16892645422181031343u, 15294728026699808052u}));
  EXPECT_EQ(draw(Random(kLargest, kLargest), 3),
            (Values{16860471621356667886u, 5296415298316004328u, 6555394502396716321u}));
}

TEST(Random, UniformUsesTheUpper53Bits) {
  Random random(42);
  EXPECT_EQ(random.uniform(), 0.10114251884320236);
  EXPECT_EQ(random.uniform(), 0.3681487117972979);
  EXPECT_EQ(random.uniform(), 0.7653418271142987);
}

TEST(Random, UniformStaysBelowOne) {
  Random random;
  random.set_state({0, 0, 0, 0});  // the one state that yields zeros for ever
  EXPECT_EQ(random.uniform(), 0.0);
  Random other(7);
  double sum = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const double value = other.uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);  // five standard errors
}

TEST(Random, BelowMatchesTheIndependentImplementation) {
  Random random(3, 1);
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 12; ++i) values.push_back(random.below(10));
  EXPECT_EQ(values, (std::vector<std::uint64_t>{6, 4, 1, 0, 0, 9, 4, 3, 1, 9, 6, 9}));
}

TEST(Random, BelowIsEvenAndHandlesTheExtremes) {
  Random random(11);
  std::array<int, 3> counts{};
  for (int i = 0; i < 30000; ++i) ++counts[random.below(3)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 410);  // five standard deviations
  EXPECT_EQ(random.below(1), 0u);
  EXPECT_LT(random.below(kLargest), kLargest);
}

TEST(Random, StateCanBeStoredAndRestored) {
  Random first(5);
  first.next();
  Random second(99);
  second.set_state(first.state());
  EXPECT_EQ(draw(first, 20), draw(second, 20));
}

TEST(Random, StreamsOfOneSeedDiffer) {
  EXPECT_NE(draw(Random(1, 0), 4), draw(Random(1, 1), 4));
  EXPECT_NE(draw(Random(1, 1), 4), draw(Random(2, 1), 4));
}

}  // namespace
}  // namespace hydraulis
