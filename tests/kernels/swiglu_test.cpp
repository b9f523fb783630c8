#include <gtest/gtest.h>

#include "tests/kernels/compute_fixture.h"

namespace hydraulis {
namespace {

template <typename T>
class Swiglu : public testing::Test {};
TYPED_TEST_SUITE(Swiglu, Precisions);

struct Shape {
  std::int64_t rows, columns;
};
constexpr Shape kShapes[] = {{0, 3}, {1, 1}, {7, 15}, {3, 16}, {5, 100}, {600, 70}};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TYPED_TEST(Swiglu, ForwardAndBackwardAgreeWithTheFormulas) {
  using T = TypeParam;
  const Backend cpu;
  for (const Shape& shape : kShapes) {
    const std::int64_t f = shape.columns;
    Random random(shape.rows * 100 + f);
    Data<T> gate_up(shape.rows, 2 * f);
    Data<T> dout(shape.rows, f);
    gate_up.fill(random, 4);
    dout.fill(random);
    Data<T> out(shape.rows, f);
    cpu->swiglu(gate_up, out, *cpu.stream);
    expect_matrix<T>(
        out,
        [&](std::int64_t i, std::int64_t j) {
          const double gate = gate_up.at(i, j);
          return gate * sigmoid(gate) * gate_up.at(i, f + j);
        },
        8);
    Data<T> gradient(shape.rows, 2 * f);
    cpu->swiglu_backward(dout, gate_up, gradient, *cpu.stream);
    expect_matrix<T>(
        gradient,
        [&](std::int64_t i, std::int64_t j) {
          const double gate = gate_up.at(i, j % f);
          const double s = sigmoid(gate);
          return j < f ? dout.at(i, j) * gate_up.at(i, f + j) * s * (1 + gate * (1 - s))
                       : dout.at(i, j - f) * gate * s;
        },
        32);
    Data<T> in_place = gate_up;
    cpu->swiglu_backward(dout, in_place, in_place, *cpu.stream);
    EXPECT_TRUE(in_place.same_bits(gradient));
  }
}

TYPED_TEST(Swiglu, FarFromZero) {
  using T = TypeParam;
  const Backend cpu;
  const double gates[] = {-1e30, -800, -90, -40, 40, 90, 800, 1e30};
  Data<T> gate_up(1, 16);
  gate_up.fill([&](std::int64_t, std::int64_t j) { return j < 8 ? gates[j] : 1.0; });
  Data<T> out(1, 8);
  cpu->swiglu(gate_up, out, *cpu.stream);
  expect_matrix<T>(
      out,
      [&](std::int64_t, std::int64_t j) {
        return gates[j] < 0 ? gates[j] * sigmoid(gates[j]) : gates[j];
      },
      8);
  Data<T> dout(1, 8);
  dout.fill(1);
  Data<T> gradient(1, 16);
  cpu->swiglu_backward(dout, gate_up, gradient, *cpu.stream);
  for (std::int64_t j = 0; j < 8; ++j) {
    EXPECT_NEAR(gradient.at(0, j), gates[j] < 0 ? 0 : 1, 1e-15);
  }
}

TEST(SwigluGradient, AgreesWithFiniteDifferences) {
  const Backend cpu;
  Random random(3);
  Data<double> gate_up(4, 22);
  Data<double> dout(4, 11);
  gate_up.fill(random, 2);
  dout.fill(random);
  Data<double> out(4, 11);
  Data<double> gradient(4, 22);
  cpu->swiglu_backward(dout, gate_up, gradient, *cpu.stream);
  const auto loss = [&] {
    cpu->swiglu(gate_up, out, *cpu.stream);
    double sum = 0;
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t j = 0; j < 11; ++j) sum += out.at(i, j) * dout.at(i, j);
    }
    return sum;
  };
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 22; ++j) {
      ASSERT_NEAR(gradient.at(i, j), derivative(gate_up, i, j, loss), 1e-8);
    }
  }
}

}  // namespace
}  // namespace hydraulis
