#include <gtest/gtest.h>

#include "tests/kernels/compute_fixture.h"

namespace hydraulis {
namespace {

constexpr double kEpsilon = 1e-5;

template <typename T>
class RmsNorm : public testing::Test {};
TYPED_TEST_SUITE(RmsNorm, Precisions);

struct Shape {
  std::int64_t rows, columns;
};
constexpr Shape kShapes[] = {{0, 5}, {1, 1}, {3, 7}, {17, 64}, {5, 130}, {700, 96}, {33, 1000}};

template <typename T>
double inverse_of(const Data<T>& x, std::int64_t i) {
  double squares = 0;
  for (std::int64_t j = 0; j < x.columns(); ++j) squares += x.at(i, j) * x.at(i, j);
  return 1 / std::sqrt(squares / static_cast<double>(x.columns()) + kEpsilon);
}

TYPED_TEST(RmsNorm, DividesByTheRootMeanSquare) {
  const Backend cpu;
  for (const Shape& shape : kShapes) {
    Random random(shape.rows + 1000 * shape.columns);
    Data<TypeParam> x(shape.rows, shape.columns);
    Data<TypeParam> weight(1, shape.columns);
    x.fill(random, 3);
    weight.fill(random);
    Data<TypeParam> y(shape.rows, shape.columns, 1);
    Data<TypeParam> inverse(shape.rows, 1, 2);
    cpu->rms_norm(x, weight, kEpsilon, y, inverse, *cpu.stream);
    expect_matrix<TypeParam>(
        inverse, [&](std::int64_t i, std::int64_t) { return inverse_of(x, i); }, 16);
    expect_matrix<TypeParam>(
        y,
        [&](std::int64_t i, std::int64_t j) {
          return x.at(i, j) * inverse_of(x, i) * weight.at(0, j);
        },
        16);
  }
}

TYPED_TEST(RmsNorm, RowsOfZerosStayZero) {
  const Backend cpu;
  Data<TypeParam> x(2, 9);
  Data<TypeParam> weight(1, 9);
  Data<TypeParam> y(2, 9);
  Data<TypeParam> inverse(2, 1);
  x.fill(0);
  weight.fill(1);
  cpu->rms_norm(x, weight, kEpsilon, y, inverse, *cpu.stream);
  expect_matrix<TypeParam>(
      y, [](std::int64_t, std::int64_t) { return 0.0; }, 0);
  expect_matrix<TypeParam>(
      inverse, [](std::int64_t, std::int64_t) { return 1 / std::sqrt(kEpsilon); }, 4);
}

TYPED_TEST(RmsNorm, BackwardAgreesWithTheFormulas) {
  using T = TypeParam;
  for (const int threads : {1, 3}) {
    const Backend cpu(threads);
    for (const Shape& shape : kShapes) {
      for (const bool accumulate : {false, true}) {
        Random random(shape.rows + 1000 * shape.columns + 7);
        Data<T> x(shape.rows, shape.columns);
        Data<T> dy(shape.rows, shape.columns, 2);
        Data<T> weight(1, shape.columns);
        x.fill(random, 2);
        dy.fill(random);
        weight.fill(random);
        Data<T> y(shape.rows, shape.columns);
        Data<T> inverse(shape.rows, 1);
        cpu->rms_norm(x, weight, kEpsilon, y, inverse, *cpu.stream);
        Data<T> dx(shape.rows, shape.columns);
        if (accumulate) dx.fill(0.5);
        Data<T> dweight(1, shape.columns);
        dweight.fill(-0.25);
        cpu->rms_norm_backward(dy, x, weight, inverse, accumulate, dx, dweight, *cpu.stream);
        std::vector<double> along(static_cast<std::size_t>(shape.rows));
        for (std::int64_t i = 0; i < shape.rows; ++i) {
          double sum = 0;
          for (std::int64_t j = 0; j < shape.columns; ++j) {
            sum += dy.at(i, j) * weight.at(0, j) * x.at(i, j);
          }
          along[static_cast<std::size_t>(i)] = sum / static_cast<double>(shape.columns);
        }
        expect_matrix<T>(
            dx,
            [&](std::int64_t i, std::int64_t j) {
              const double r = inverse_of(x, i);
              return (accumulate ? 0.5 : 0) + r * dy.at(i, j) * weight.at(0, j) -
                     r * r * r * x.at(i, j) * along[static_cast<std::size_t>(i)];
            },
            64);
        expect_matrix<T>(
            dweight,
            [&](std::int64_t, std::int64_t j) {
              double sum = -0.25;
              for (std::int64_t i = 0; i < shape.rows; ++i) {
                sum += dy.at(i, j) * x.at(i, j) * inverse_of(x, i);
              }
              return sum;
            },
            16, std::sqrt(static_cast<double>(shape.rows + 1)));
      }
    }
  }
}

TYPED_TEST(RmsNorm, GradientMayReplaceItsInput) {
  using T = TypeParam;
  const Backend cpu;
  Random random(2);
  Data<T> x(9, 37);
  Data<T> dy(9, 37);
  Data<T> weight(1, 37);
  x.fill(random);
  dy.fill(random);
  weight.fill(random);
  Data<T> inverse(9, 1);
  Data<T> apart(9, 37);
  cpu->rms_norm(x, weight, kEpsilon, apart, inverse, *cpu.stream);
  Data<T> dweight(1, 37);
  dweight.fill(0);
  cpu->rms_norm_backward(dy, x, weight, inverse, false, apart, dweight, *cpu.stream);
  cpu->rms_norm_backward(dy, x, weight, inverse, false, dy, dweight, *cpu.stream);
  EXPECT_TRUE(apart.same_bits(dy));
}

TEST(RmsNormGradient, AgreesWithFiniteDifferences) {
  const Backend cpu;
  Random random(4);
  Data<double> x(6, 21);
  Data<double> dy(6, 21);
  Data<double> weight(1, 21);
  x.fill(random);
  dy.fill(random);
  weight.fill(random);
  Data<double> y(6, 21);
  Data<double> inverse(6, 1);
  const auto loss = [&] {
    cpu->rms_norm(x, weight, kEpsilon, y, inverse, *cpu.stream);
    double sum = 0;
    for (std::int64_t i = 0; i < 6; ++i) {
      for (std::int64_t j = 0; j < 21; ++j) sum += y.at(i, j) * dy.at(i, j);
    }
    return sum;
  };
  loss();
  Data<double> dx(6, 21);
  Data<double> dweight(1, 21);
  dweight.fill(0);
  cpu->rms_norm_backward(dy, x, weight, inverse, false, dx, dweight, *cpu.stream);
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t j = 0; j < 21; ++j) {
      ASSERT_NEAR(dx.at(i, j), derivative(x, i, j, loss), 1e-8);
    }
  }
  for (std::int64_t j = 0; j < 21; ++j) {
    ASSERT_NEAR(dweight.at(0, j), derivative(weight, 0, j, loss), 1e-8);
  }
}

}  // namespace
}  // namespace hydraulis
