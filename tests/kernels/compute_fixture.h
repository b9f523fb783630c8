#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "base/random.h"
#include "kernels/compute.h"
#include "kernels/cpu/device.h"

namespace hydraulis {

/// A device of so many threads with its kernels and one stream.
struct Backend {
  explicit Backend(int threads = 2)
      : device(cpu::make_device(threads, 0)),
        compute(make_cpu_compute(*device)),
        stream(device->make_stream()) {}
  Compute* operator->() const { return compute.get(); }
  std::unique_ptr<Device> device;
  std::unique_ptr<Compute> compute;
  std::unique_ptr<Stream> stream;
};

inline double normal(Random& random) {
  const double u = 1 - random.uniform();
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * random.uniform());
}

/// A matrix in memory full of NaN, rows `gap` elements apart: what a kernel does not write, and
/// what it writes between rows, shows.
template <typename T>
struct Data {
  Data(std::int64_t rows, std::int64_t columns, std::int64_t gap = 3)
      : memory(static_cast<std::size_t>(rows * (columns + gap)),
               std::numeric_limits<T>::quiet_NaN()),
        matrix{memory.data(), sizeof(T) == 8 ? DataType::f64 : DataType::f32, rows, columns,
               columns + gap} {}
  Data(const Data& other) : memory(other.memory), matrix(other.matrix) {
    matrix.data = memory.data();
  }
  Data& operator=(const Data&) = delete;

  T& operator()(std::int64_t i, std::int64_t j) {
    return memory[static_cast<std::size_t>(i * matrix.stride + j)];
  }
  double at(std::int64_t i, std::int64_t j) const {
    return static_cast<double>(memory[static_cast<std::size_t>(i * matrix.stride + j)]);
  }
  std::int64_t rows() const { return matrix.rows; }
  std::int64_t columns() const { return matrix.columns; }
  operator Matrix() const { return matrix; }         // NOLINT(google-explicit-constructor)
  operator ConstMatrix() const { return {matrix}; }  // NOLINT(google-explicit-constructor)

  Data& fill(const std::function<double(std::int64_t, std::int64_t)>& value) {
    for (std::int64_t i = 0; i < rows(); ++i) {
      for (std::int64_t j = 0; j < columns(); ++j) (*this)(i, j) = static_cast<T>(value(i, j));
    }
    return *this;
  }
  Data& fill(Random& random, double scale = 1) {
    return fill([&](std::int64_t, std::int64_t) { return scale * normal(random); });
  }
  Data& fill(double value) {
    return fill([&](std::int64_t, std::int64_t) { return value; });
  }
  bool same_bits(const Data& other) const {
    return memory.size() == other.memory.size() &&
           (memory.empty() ||
            std::memcmp(memory.data(), other.memory.data(), memory.size() * sizeof(T)) == 0);
  }

  std::vector<T> memory;
  Matrix matrix;
};

template <typename T>
double rounding() {
  return static_cast<double>(std::numeric_limits<T>::epsilon());
}

/// Every element within `ulps` roundings of the reference, relative to `size` where elements are
/// sums of terms of about that size; nothing written between the rows.
template <typename T>
void expect_matrix(const Data<T>& result,
                   const std::function<double(std::int64_t, std::int64_t)>& reference, double ulps,
                   double size = 1) {
  for (std::int64_t i = 0; i < result.rows(); ++i) {
    for (std::int64_t j = 0; j < result.columns(); ++j) {
      const double expected = reference(i, j);
      const double bound = ulps * rounding<T>() * std::max(size, std::abs(expected));
      ASSERT_NEAR(result.at(i, j), expected, bound) << "at (" << i << ", " << j << ")";
    }
    for (std::int64_t j = result.columns(); j < result.matrix.stride; ++j) {
      ASSERT_TRUE(std::isnan(result.at(i, j))) << "written between rows " << i << " and " << i + 1;
    }
  }
}

/// Derivative of f to one element of x by central differences; f64 only.
inline double derivative(Data<double>& x, std::int64_t i, std::int64_t j,
                         const std::function<double()>& f, double step = 1e-5) {
  const double kept = x(i, j);
  x(i, j) = kept + step;
  const double above = f();
  x(i, j) = kept - step;
  const double below = f();
  x(i, j) = kept;
  return (above - below) / (2 * step);
}

using Precisions = ::testing::Types<float, double>;

}  // namespace hydraulis
