#include <gtest/gtest.h>

#include "tests/kernels/compute_fixture.h"

namespace hydraulis {
namespace {

template <typename T>
class Optimizer : public testing::Test {
 protected:
  /// Steps taken with fresh gradients; the same in double precision beside them.
  static void check(std::int64_t n, bool lamb) {
    const Backend cpu(3);
    Random random(n);
    Data<T> parameter(1, n, 0);
    Data<T> first(1, n, 0);
    Data<T> second(1, n, 0);
    parameter.fill(random);
    first.fill(0);
    second.fill(0);
    std::vector<double> p;
    for (std::int64_t i = 0; i < n; ++i) p.push_back(parameter.at(0, i));
    std::vector<double> m(p.size(), 0);
    std::vector<double> v(p.size(), 0);
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
      const double correction1 = 1 - std::pow(0.9, static_cast<double>(settings.step));
      const double correction2 = 1 - std::pow(0.98, static_cast<double>(settings.step));
      std::vector<double> directions;
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double g = 0.25 * gradient.at(0, static_cast<std::int64_t>(i));
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.98 * v[i] + 0.02 * g * g;
        directions.push_back(m[i] / correction1 / (std::sqrt(v[i] / correction2) + 1e-8) +
                             0.1 * p[i]);
      }
      if (lamb) {
        cpu->lamb_direction(settings, gradient, parameter, first, second, update, *cpu.stream);
        expect_matrix<T>(
            update,
            [&](std::int64_t, std::int64_t i) { return directions[static_cast<std::size_t>(i)]; },
            32);
        cpu->add_scaled(-0.5 * settings.learning_rate, update, parameter, *cpu.stream);
      } else {
        cpu->adamw(settings, gradient, parameter, first, second, *cpu.stream);
      }
      for (std::size_t i = 0; i < p.size(); ++i) {
        p[i] -= (lamb ? 0.5 : 1) * settings.learning_rate * directions[i];
      }
    }
    expect_matrix<T>(
        parameter, [&](std::int64_t, std::int64_t i) { return p[static_cast<std::size_t>(i)]; }, 8);
    expect_matrix<T>(
        first, [&](std::int64_t, std::int64_t i) { return m[static_cast<std::size_t>(i)]; }, 16);
    expect_matrix<T>(
        second, [&](std::int64_t, std::int64_t i) { return v[static_cast<std::size_t>(i)]; }, 16);
  }
};
TYPED_TEST_SUITE(Optimizer, Precisions);

TYPED_TEST(Optimizer, AdamwAgreesWithTheFormulas) {
  for (const std::int64_t n : {0, 1, 15, 100, 40001}) this->check(n, false);
}

TYPED_TEST(Optimizer, LambAgreesWithTheFormulas) {
  for (const std::int64_t n : {0, 1, 15, 100, 40001}) this->check(n, true);
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
  cpu->adamw(settings, zero, parameter, first, second, *cpu.stream);
  expect_matrix<TypeParam>(
      parameter, [](std::int64_t, std::int64_t) { return 2 - 0.125 * 0.5 * 2; }, 1);
}

TYPED_TEST(Optimizer, RefusesWrongStretches) {
  const Backend cpu;
  Data<TypeParam> a(1, 4);
  Data<TypeParam> b(1, 5);
  OptimizerStep settings;
  EXPECT_THROW(cpu->adamw(settings, a, b, b, b, *cpu.stream), std::logic_error);
  Data<TypeParam> rows(2, 4);
  EXPECT_THROW(cpu->adamw(settings, rows, rows, rows, rows, *cpu.stream), std::logic_error);
  settings.step = 0;
  EXPECT_THROW(cpu->adamw(settings, a, a, a, a, *cpu.stream), std::logic_error);
}

}  // namespace
}  // namespace hydraulis
