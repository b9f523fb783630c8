#include <gtest/gtest.h>

#include "tests/kernels/compute_fixture.h"
#include "tests/kernels/optimizer_reference.h"

namespace hydraulis {
namespace {

template <typename T>
class Optimizer : public testing::Test {
 protected:
  static Data<double> in_double(const Data<T>& data) {
    Data<double> copy(1, data.columns(), 0);
    return copy.fill([&](std::int64_t, std::int64_t i) { return data.at(0, i); });
  }

  /// Steps taken with fresh gradients; the same in double precision beside them.
  static void check(std::int64_t n, const std::vector<OptimizerStretch>& stretches, bool lamb) {
    const Backend cpu(3);
    Random random(static_cast<std::uint64_t>(n));
    Data<T> parameter(1, n, 0);
    Data<T> first(1, n, 0);
    Data<T> second(1, n, 0);
    parameter.fill(random);
    first.fill(0);
    second.fill(0);
    OptimizerReference reference(in_double(parameter), in_double(first), in_double(second));
    OptimizerStep settings;
    settings.learning_rate = 0.01;
    settings.beta1 = 0.9;
    settings.beta2 = 0.98;
    settings.weight_decay = 0.1;
    settings.gradient_scale = 0.25;
    for (settings.step = 1; settings.step <= 4; ++settings.step) {
      Data<T> gradient(1, n, 0);
      gradient.fill(random, 3);
      Data<T> update(1, n, 0);
      update.fill(0);
      const auto directions = reference.advance(settings, stretches, in_double(gradient));
      std::vector<double> rates(stretches.size(), settings.learning_rate);
      if (lamb) {
        cpu->lamb_direction(settings, stretches, gradient, parameter, first, second, update,
                            *cpu.stream);
        expect_matrix<T>(update, elements_of(directions), 32);
        std::vector<double> scales;
        for (std::size_t i = 0; i < rates.size(); ++i) {
          rates[i] *= static_cast<double>(i % 3);
          scales.push_back(-rates[i]);
        }
        cpu->add_scaled(stretches, scales, update, parameter, *cpu.stream);
      } else {
        cpu->adamw(settings, stretches, gradient, parameter, first, second, *cpu.stream);
      }
      reference.apply(stretches, rates, directions);
    }
    expect_matrix<T>(parameter, elements_of(reference.p), 8);
    expect_matrix<T>(first, elements_of(reference.m), 16);
    expect_matrix<T>(second, elements_of(reference.v), 16);
  }
};
TYPED_TEST_SUITE(Optimizer, Precisions);

TYPED_TEST(Optimizer, AdamwAgreesWithTheFormulas) {
  for (const std::int64_t n : {0, 1, 15, 100, 40001}) {
    this->check(n, {{0, n}}, false);
    this->check(n, uneven_stretches(n), false);
  }
}

TYPED_TEST(Optimizer, LambAgreesWithTheFormulas) {
  for (const std::int64_t n : {0, 1, 15, 100, 40001}) {
    this->check(n, {{0, n}}, true);
    this->check(n, uneven_stretches(n), true);
  }
}

TYPED_TEST(Optimizer, SumsOfSquaresOfStretches) {
  const Backend cpu(3);
  Random random(1);
  Data<TypeParam> x(1, 40001, 0);
  x.fill(random);
  const auto stretches = uneven_stretches(40001);
  std::vector<double> sums(stretches.size(), -1);
  cpu->sum_squares(stretches, x, sums, *cpu.stream);
  for (std::size_t n = 0; n < stretches.size(); ++n) {
    double expected = 0;
    for (std::int64_t i = stretches[n].begin; i < stretches[n].begin + stretches[n].count; ++i) {
      expected += x.at(0, i) * x.at(0, i);
    }
    EXPECT_NEAR(sums[n], expected, 1e-13 * expected);
  }
}

// With no gradient ever, only the decay moves a parameter: 0/0 must not.
TYPED_TEST(Optimizer, NoGradientNoDirection) {
  const Backend cpu;
  Data<TypeParam> zero(1, 5, 0);
  zero.fill(0);
  Data<TypeParam> first = zero;
  Data<TypeParam> second = zero;
  Data<TypeParam> parameter(1, 5, 0);
  parameter.fill(2);
  OptimizerStep settings;
  settings.learning_rate = 0.125;
  settings.weight_decay = 0.5;
  const std::vector<OptimizerStretch> stretches = {{0, 3, true}, {3, 2, false}};
  cpu->adamw(settings, stretches, zero, parameter, first, second, *cpu.stream);
  expect_matrix<TypeParam>(
      parameter, [](std::int64_t, std::int64_t i) { return i < 3 ? 2 - 0.125 * 0.5 * 2 : 2; }, 1);
}

TYPED_TEST(Optimizer, RefusesWrongStretches) {
  const Backend cpu;
  Data<TypeParam> a(1, 4);
  Data<TypeParam> b(1, 5);
  OptimizerStep settings;
  const std::vector<OptimizerStretch> whole = {{0, 4}};
  EXPECT_THROW(cpu->adamw(settings, whole, a, b, b, b, *cpu.stream), std::logic_error);
  Data<TypeParam> rows(2, 4);
  EXPECT_THROW(cpu->adamw(settings, whole, rows, rows, rows, rows, *cpu.stream), std::logic_error);
  std::vector<double> numbers(2);
  for (const auto& wrong : std::vector<std::vector<OptimizerStretch>>{
           {{0, 5}}, {{-1, 2}}, {{0, -1}}, {{0, 2}, {1, 2}}, {{2, 2}, {0, 2}}}) {
    EXPECT_THROW(cpu->adamw(settings, wrong, a, a, a, a, *cpu.stream), std::logic_error);
    const std::span<double> some = std::span(numbers).first(wrong.size());
    EXPECT_THROW(cpu->sum_squares(wrong, a, some, *cpu.stream), std::logic_error);
    EXPECT_THROW(cpu->add_scaled(wrong, some, a, a, *cpu.stream), std::logic_error);
  }
  EXPECT_THROW(cpu->sum_squares(whole, a, numbers, *cpu.stream), std::logic_error);
  EXPECT_THROW(cpu->add_scaled(whole, numbers, a, a, *cpu.stream), std::logic_error);
  settings.step = 0;
  EXPECT_THROW(cpu->adamw(settings, whole, a, a, a, a, *cpu.stream), std::logic_error);
}

}  // namespace
}  // namespace hydraulis
