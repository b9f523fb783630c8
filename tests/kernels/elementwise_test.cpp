#include <gtest/gtest.h>

#include "tests/kernels/compute_fixture.h"

namespace hydraulis {
namespace {

template <typename T>
class Elementwise : public testing::Test {};
TYPED_TEST_SUITE(Elementwise, Precisions);

struct Shape {
  std::int64_t rows, columns;
};
constexpr Shape kShapes[] = {{0, 4},   {4, 0},     {1, 1},     {3, 17},
                             {64, 64}, {1, 50000}, {777, 130}, {2, 9001}};

TYPED_TEST(Elementwise, Adds) {
  using T = TypeParam;
  const Backend cpu(3);
  for (const Shape& shape : kShapes) {
    Random random(shape.rows * 7 + shape.columns);
    Data<T> a(shape.rows, shape.columns);
    Data<T> b(shape.rows, shape.columns, 1);
    a.fill(random);
    b.fill(random);
    const auto sum = [&](std::int64_t i, std::int64_t j) { return a.at(i, j) + b.at(i, j); };
    Data<T> out(shape.rows, shape.columns);
    cpu->add(a, b, out, *cpu.stream);
    expect_matrix<T>(out, sum, 1, 0);
    Data<T> left = a;
    cpu->add(left, b, left, *cpu.stream);
    expect_matrix<T>(left, sum, 1, 0);
    Data<T> right = b;
    cpu->add(a, right, right, *cpu.stream);
    expect_matrix<T>(right, sum, 1, 0);
  }
}

TYPED_TEST(Elementwise, Converts) {
  using T = TypeParam;
  const Backend cpu(3);
  for (const Shape& shape : kShapes) {
    Random random(shape.rows + shape.columns);
    Data<T> from(shape.rows, shape.columns);
    from.fill(random);
    Data<float> narrow(shape.rows, shape.columns, 2);
    Data<double> wide(shape.rows, shape.columns, 0);
    cpu->convert(from, narrow, *cpu.stream);
    cpu->convert(from, wide, *cpu.stream);
    expect_matrix<float>(
        narrow,
        [&](std::int64_t i, std::int64_t j) {
          return static_cast<double>(static_cast<float>(from.at(i, j)));
        },
        0);
    expect_matrix<double>(
        wide, [&](std::int64_t i, std::int64_t j) { return from.at(i, j); }, 0);
  }
}

TYPED_TEST(Elementwise, SumsOfSquaresInDoublePrecision) {
  using T = TypeParam;
  for (const int threads : {1, 2, 5}) {
    const Backend cpu(threads);
    for (const Shape& shape : kShapes) {
      for (const std::int64_t gap : {0, 3}) {
        Random random(shape.rows * 3 + shape.columns);
        Data<T> x(shape.rows, shape.columns, gap);
        x.fill(random);
        long double sum = 0;
        for (std::int64_t i = 0; i < shape.rows; ++i) {
          for (std::int64_t j = 0; j < shape.columns; ++j) {
            sum += static_cast<long double>(x.at(i, j)) * static_cast<long double>(x.at(i, j));
          }
        }
        const auto expected = static_cast<double>(sum);
        EXPECT_NEAR(cpu->sum_squares(x, *cpu.stream), expected, 1e-14 * expected);
      }
    }
  }
}

TYPED_TEST(Elementwise, SumOfSquaresIsTheSameForAnyThreads) {
  using T = TypeParam;
  Random random(1);
  Data<T> x(100, 999);
  x.fill(random);
  const Backend one(1);
  const Backend four(4);
  EXPECT_EQ(one->sum_squares(x, *one.stream), four->sum_squares(x, *four.stream));
}

TYPED_TEST(Elementwise, RefusesWhatItDoesNotCompute) {
  using T = TypeParam;
  const Backend cpu;
  Data<T> a(2, 3);
  Data<T> b(3, 2);
  EXPECT_THROW(cpu->add(a, b, a, *cpu.stream), std::logic_error);
  Matrix half = a;
  half.type = DataType::bf16;
  EXPECT_THROW(cpu->convert(half, b, *cpu.stream), std::logic_error);
  EXPECT_THROW(cpu->sum_squares(half, *cpu.stream), std::logic_error);
  Matrix narrow = a;
  narrow.stride = 2;
  EXPECT_THROW(cpu->sum_squares(narrow, *cpu.stream), std::logic_error);
}

}  // namespace
}  // namespace hydraulis
