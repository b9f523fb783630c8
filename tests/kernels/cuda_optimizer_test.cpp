#include <gtest/gtest.h>

#include "tests/kernels/cuda_fixture.h"
#include "tests/kernels/optimizer_reference.h"

namespace hydraulis {
namespace {

/// Masters, moments and gradient of many tensors, and the same in double precision.
struct Problem {
  Problem(const CudaBackend& gpu, std::int64_t elements, bool packed)
      : stretches(uneven_stretches(elements)),
        random(static_cast<std::uint64_t>(elements)),
        gradient(gpu, elements, packed),
        parameter(gpu, elements, packed),
        first(gpu, elements, packed),
        second(gpu, elements, packed),
        gradient_values(gradient.set(filled(elements, 1))),
        reference(parameter.set(filled(elements, 1)), first.set(filled(elements, 0.1)),
                  second.set(filled(elements, 0))) {}

  /// A row that starts at a multiple of 16 bytes or does not.
  class Row {
   public:
    Row(const CudaBackend& gpu, std::int64_t elements, bool packed)
        : matrix_(gpu, DataType::f32, 1, elements + 1), begin_(packed ? 0 : 1), count_(elements) {}
    operator Matrix() const {  // NOLINT(google-explicit-constructor)
      return matrix_.matrix().column_range(begin_, count_);
    }
    operator ConstMatrix() const { return {Matrix(*this)}; }  // NOLINT(google-explicit-constructor)
    Data<double> set(const Data<double>& values) {
      Data<double> all(1, count_ + 1, 0);
      all.fill([&](std::int64_t, std::int64_t i) {
        return i < begin_ || i - begin_ >= count_ ? 0.0 : values.at(0, i - begin_);
      });
      return own(matrix_.set(all));
    }
    Data<double> get() const { return own(matrix_.get()); }

   private:
    Data<double> own(const Data<double>& all) const {
      Data<double> values(1, count_, 0);
      values.fill([&](std::int64_t, std::int64_t i) { return all.at(0, begin_ + i); });
      return values;
    }
    DeviceMatrix matrix_;
    std::int64_t begin_, count_;
  };

  /// Normal numbers of a scale; numbers that are not small and not negative for none.
  Data<double> filled(std::int64_t elements, double scale) {
    Data<double> values(1, elements, 0);
    if (scale > 0) return values.fill(random, scale);
    return values.fill([&](std::int64_t, std::int64_t) { return 0.01 + random.uniform(); });
  }

  /// Every element within so many roundings; those outside the stretches to the bit.
  static void expect_near(const Row& row, const std::vector<double>& expected, double ulps) {
    const Data<double> values = row.get();
    for (std::int64_t i = 0; i < values.columns(); ++i) {
      const double e = expected[static_cast<std::size_t>(i)];
      ASSERT_NEAR(values.at(0, i), e, ulps * rounding<float>() * std::max(1.0, std::abs(e)))
          << "at " << i;
    }
  }
  void expect_unmoved(const Row& row, const std::vector<double>& before) const {
    const Data<double> values = row.get();
    std::int64_t begin = 0;
    for (std::size_t n = 0; n <= stretches.size(); ++n) {
      const std::int64_t end = n < stretches.size() ? stretches[n].begin : values.columns();
      for (std::int64_t i = begin; i < end; ++i) {
        ASSERT_EQ(values.at(0, i), before[static_cast<std::size_t>(i)]) << "at " << i;
      }
      if (n < stretches.size()) begin = stretches[n].begin + stretches[n].count;
    }
  }

  std::vector<OptimizerStretch> stretches;
  Random random;
  Row gradient, parameter, first, second;
  Data<double> gradient_values;
  OptimizerReference reference;
};

constexpr OptimizerStep kStep{0.01, 0.9, 0.95, 1e-8, 0.1, 0.5, 3};

/// Sizes below and beyond what one block works on.
void for_each_problem(const std::function<void(const CudaBackend&, Problem&)>& test) {
  for (const std::int64_t elements : {1, 2, 9, 1000, 50021}) {
    for (const bool packed : {true, false}) {
      SCOPED_TRACE(std::to_string(elements) + (packed ? ", packed" : ""));
      const CudaBackend gpu(static_cast<std::uint64_t>(elements));
      Problem problem(gpu, elements, packed);
      test(gpu, problem);
      ASSERT_EQ(emulator::take_fault(), "");
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(CudaOptimizer, AdamWOverManyTensors) {
  for_each_problem([](const CudaBackend& gpu, Problem& x) {
    const std::vector<double> before = x.reference.p;
    gpu->adamw(kStep, x.stretches, x.gradient, x.parameter, x.first, x.second, *gpu.stream);
    const auto directions = x.reference.advance(kStep, x.stretches, x.gradient_values);
    x.reference.apply(x.stretches, std::vector<double>(x.stretches.size(), kStep.learning_rate),
                      directions);
    Problem::expect_near(x.parameter, x.reference.p, 4);
    Problem::expect_near(x.first, x.reference.m, 4);
    Problem::expect_near(x.second, x.reference.v, 4);
    x.expect_unmoved(x.parameter, before);
  });
}

TEST(CudaOptimizer, LambOverManyTensors) {
  for_each_problem([](const CudaBackend& gpu, Problem& x) {
    const std::vector<double> before = x.reference.p;
    Problem::Row update(gpu, static_cast<std::int64_t>(before.size()), true);
    update.set(x.filled(static_cast<std::int64_t>(before.size()), 1));
    std::vector<double> parameters(x.stretches.size());
    std::vector<double> updates(x.stretches.size());
    gpu->lamb_direction(kStep, x.stretches, x.gradient, x.parameter, x.first, x.second, update,
                        *gpu.stream);
    gpu->sum_squares(x.stretches, x.parameter, parameters, *gpu.stream);
    gpu->sum_squares(x.stretches, update, updates, *gpu.stream);
    const auto directions = x.reference.advance(kStep, x.stretches, x.gradient_values);
    std::vector<double> rates;
    for (std::size_t n = 0; n < x.stretches.size(); ++n) {
      double squares = 0;
      double update_squares = 0;
      for (std::int64_t i = x.stretches[n].begin; i < x.stretches[n].begin + x.stretches[n].count;
           ++i) {
        squares += std::pow(before[static_cast<std::size_t>(i)], 2);
        update_squares += std::pow(directions[static_cast<std::size_t>(i)], 2);
      }
      EXPECT_NEAR(parameters[n], squares, 1e-12 * squares);
      EXPECT_NEAR(updates[n], update_squares, 1e-5 * update_squares);
      rates.push_back(0.02 * static_cast<double>(n % 3));
    }
    std::vector<double> scales;
    for (const double rate : rates) scales.push_back(-rate);
    gpu->add_scaled(x.stretches, scales, update, x.parameter, *gpu.stream);
    x.reference.apply(x.stretches, rates, directions);
    Problem::expect_near(x.parameter, x.reference.p, 8);
    Problem::expect_near(x.first, x.reference.m, 4);
    Problem::expect_near(x.second, x.reference.v, 4);
    x.expect_unmoved(x.parameter, before);
  });
}

TEST(CudaOptimizer, WrongArgumentsAreRefused) {
  const CudaBackend gpu;
  DeviceMatrix half(gpu, DataType::bf16, 1, 8);
  DeviceMatrix single(gpu, DataType::f32, 1, 8);
  const std::vector<OptimizerStretch> whole = {{0, 8}};
  const std::vector<OptimizerStretch> beyond = {{0, 9}};
  std::vector<double> sums(1);
  EXPECT_THROW(gpu->adamw({}, whole, half, half, half, half, *gpu.stream), std::logic_error);
  EXPECT_THROW(gpu->adamw({}, beyond, single, single, single, single, *gpu.stream),
               std::logic_error);
  EXPECT_THROW(gpu->sum_squares(beyond, single, sums, *gpu.stream), std::logic_error);
  EXPECT_THROW(gpu->add_scaled(beyond, sums, single, single, *gpu.stream), std::logic_error);
}

}  // namespace
}  // namespace hydraulis
