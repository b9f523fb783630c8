#include <gtest/gtest.h>

#include "tests/kernels/compute_fixture.h"

namespace hydraulis {
namespace {

template <typename T>
class Rotary : public testing::Test {};
TYPED_TEST_SUITE(Rotary, Precisions);

std::vector<double> frequencies(std::int64_t half) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < half; ++i) {
    result.push_back(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half)));
  }
  return result;
}

// Positions up to millions: an angle in single precision would be wrong by tenths.
TYPED_TEST(Rotary, TableHoldsCosinesThenSines) {
  const Backend cpu;
  const std::vector<std::int32_t> positions = {0, 1, 2, 0, 1, 1000003, 131071};
  const auto inverse = frequencies(5);
  Data<TypeParam> table(7, 10);
  cpu->rotary_table(positions, inverse, table, *cpu.stream);
  expect_matrix<TypeParam>(
      table,
      [&](std::int64_t t, std::int64_t i) {
        const double angle =
            positions[static_cast<std::size_t>(t)] * inverse[static_cast<std::size_t>(i % 5)];
        return i < 5 ? std::cos(angle) : std::sin(angle);
      },
      1);
  Data<TypeParam> none(0, 10);
  cpu->rotary_table({}, inverse, none, *cpu.stream);
}

TYPED_TEST(Rotary, RotatesPairsHalfAHeadApartAndBack) {
  for (const int half : {1, 4, 9, 16, 33}) {
    for (const std::int64_t rows : {1, 6, 800}) {
      const Backend cpu;
      const int heads = 3;
      std::vector<std::int32_t> positions;
      for (std::int64_t t = 0; t < rows; ++t) {
        positions.push_back(static_cast<std::int32_t>(t * 7 % 501));
      }
      const auto inverse = frequencies(half);
      Data<TypeParam> table(rows, 2 * half);
      cpu->rotary_table(positions, inverse, table, *cpu.stream);
      Random random(half);
      Data<TypeParam> x(rows, heads * 2 * half);
      x.fill(random);
      const Data<TypeParam> before = x;
      cpu->rotary(x, heads, table, false, *cpu.stream);
      expect_matrix<TypeParam>(
          x,
          [&](std::int64_t t, std::int64_t column) {
            const std::int64_t head = column / (2 * half) * 2 * half;
            const std::int64_t i = column % (2 * half) % half;
            const double angle =
                positions[static_cast<std::size_t>(t)] * inverse[static_cast<std::size_t>(i)];
            const double first = before.at(t, head + i);
            const double second = before.at(t, head + half + i);
            return column % (2 * half) < half ? first * std::cos(angle) - second * std::sin(angle)
                                              : second * std::cos(angle) + first * std::sin(angle);
          },
          4, 2);
      cpu->rotary(x, heads, table, true, *cpu.stream);
      expect_matrix<TypeParam>(
          x, [&](std::int64_t i, std::int64_t j) { return before.at(i, j); }, 8, 2);
    }
  }
}

// The rotation is linear and orthogonal, so turning back is its gradient: <R x, y> = <x, R⁻¹ y>.
TEST(RotaryGradient, IsTheInverse) {
  const Backend cpu;
  const std::vector<std::int32_t> positions = {3, 77, 12};
  Data<double> table(3, 6);
  cpu->rotary_table(positions, frequencies(3), table, *cpu.stream);
  Random random(8);
  Data<double> x(3, 12);
  Data<double> y(3, 12);
  x.fill(random);
  y.fill(random);
  const auto product = [](const Data<double>& a, const Data<double>& b) {
    double sum = 0;
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t j = 0; j < 12; ++j) sum += a.at(i, j) * b.at(i, j);
    }
    return sum;
  };
  Data<double> forward = x;
  Data<double> backward = y;
  cpu->rotary(forward, 2, table, false, *cpu.stream);
  cpu->rotary(backward, 2, table, true, *cpu.stream);
  EXPECT_NEAR(product(forward, y), product(x, backward), 1e-13);
  EXPECT_GT(std::abs(product(forward, y) - product(x, y)), 0.1);
}

}  // namespace
}  // namespace hydraulis
