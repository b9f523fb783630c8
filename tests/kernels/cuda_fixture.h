#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/compute.h"
#include "kernels/cuda/device.h"
#include "tests/kernels/compute_fixture.h"

// The same tests run on the emulator and, by hand, on a GPU, where nobody watches.
#ifdef HYDRAULIS_CUDA_EMULATOR
#include "tests/cuda_emulator/emulator.h"
#else
namespace emulator {
inline constexpr bool kShadow = false;
inline void set_seed(std::uint64_t) {}
inline std::string take_fault() { return {}; }
}  // namespace emulator
#endif

namespace hydraulis {

/// A GPU with its kernels and one stream, as the emulator runs it under a seed.
struct CudaBackend {
  explicit CudaBackend(std::uint64_t seed = 1) {
    emulator::set_seed(seed);
    device = cuda::make_device(0);
    compute = cuda::make_compute(*device);
    stream = device->make_stream();
  }
  Compute* operator->() const { return compute.get(); }
  std::unique_ptr<Device> device;
  std::unique_ptr<Compute> compute;
  std::unique_ptr<Stream> stream;
};

inline double epsilon_of(DataType type) {
  return type == DataType::bf16  ? std::ldexp(1.0, -7)
         : type == DataType::f32 ? rounding<float>()
                                 : rounding<double>();
}

/// The number that memory of the type holds for this one.
inline double rounded(DataType type, double value) {
  if (type == DataType::f64) return value;
  const auto single = static_cast<float>(value);
  if (type == DataType::f32 || !std::isfinite(single)) return static_cast<double>(single);
  const auto bits = std::bit_cast<std::uint32_t>(single);
  const std::uint32_t kept = (bits + 0x7FFFU + (bits >> 16 & 1U)) & 0xFFFF0000U;
  return static_cast<double>(std::bit_cast<float>(kept));
}

/// A matrix in device memory, its rows `gap` elements apart; unwritten until set. What lies between
/// rows is never written by the host, so kernels that read it are found.
class DeviceMatrix {
 public:
  DeviceMatrix(const CudaBackend& backend, DataType type, std::int64_t rows, std::int64_t columns,
               std::int64_t gap = 8)
      : backend_(&backend),
        buffer_(*backend.device, rows * (columns + gap) * size_of(type)),
        matrix_{buffer_.data(), type, rows, columns, columns + gap} {
#ifndef HYDRAULIS_CUDA_EMULATOR
    // Fresh memory of the emulator looks like this too.
    const std::vector<char> unwritten(static_cast<std::size_t>(buffer_.bytes()), '\xFF');
    backend.device->copy_to_device(buffer_.data(), unwritten.data(), buffer_.bytes(),
                                   *backend.stream);
#endif
  }

  operator Matrix() const { return matrix_; }         // NOLINT(google-explicit-constructor)
  operator ConstMatrix() const { return {matrix_}; }  // NOLINT(google-explicit-constructor)
  const Matrix& matrix() const { return matrix_; }

  /// Copies values in, rounded to the type, and returns what they were rounded to.
  Data<double> set(const Data<double>& values) {
    Data<double> kept(values.rows(), values.columns());
    const std::int64_t size = size_of(matrix_.type);
    std::vector<char> row(static_cast<std::size_t>(matrix_.columns * size));
    for (std::int64_t i = 0; i < matrix_.rows; ++i) {
      for (std::int64_t j = 0; j < matrix_.columns; ++j) {
        kept(i, j) = rounded(matrix_.type, values.at(i, j));
        const auto single = static_cast<float>(kept.at(i, j));
        const auto bits = std::bit_cast<std::uint32_t>(single) >> (size == 2 ? 16 : 0);
        std::memcpy(row.data() + j * size, &bits, static_cast<std::size_t>(size));
      }
      backend_->device->copy_to_device(matrix_.row_range(i, 1).data, row.data(),
                                       matrix_.columns * size, *backend_->stream);
    }
    return kept;
  }
  Data<double> set(double value) {
    Data<double> values(matrix_.rows, matrix_.columns);
    values.fill(value);
    return set(values);
  }
  Data<double> set(Random& random, double scale = 1) {
    Data<double> values(matrix_.rows, matrix_.columns);
    values.fill(random, scale);
    return set(values);
  }

  /// The raw bytes, once the stream has come so far.
  std::vector<char> bytes() const {
    std::vector<char> all(static_cast<std::size_t>(buffer_.bytes()));
    backend_->device->copy_to_host(all.data(), buffer_.data(), buffer_.bytes(), *backend_->stream);
    backend_->device->synchronize(*backend_->stream);
    return all;
  }
  /// The values, once the stream has come so far. Fails when something was written between rows.
  Data<double> get() const {
    const std::vector<char> all = bytes();
    const std::int64_t size = size_of(matrix_.type);
    const auto at = [&](std::int64_t i, std::int64_t j) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, all.data() + (i * matrix_.stride + j) * size,
                  static_cast<std::size_t>(size));
      return bits;
    };
    Data<double> values(matrix_.rows, matrix_.columns);
    for (std::int64_t i = 0; i < matrix_.rows; ++i) {
      for (std::int64_t j = 0; j < matrix_.columns; ++j) {
        values(i, j) = static_cast<double>(std::bit_cast<float>(at(i, j) << (size == 2 ? 16 : 0)));
      }
      for (std::int64_t j = matrix_.columns; j < matrix_.stride; ++j) {
        EXPECT_EQ(at(i, j), size == 2 ? 0xFFFFU : 0xFFFFFFFFU) << "written behind row " << i;
      }
    }
    return values;
  }

 private:
  const CudaBackend* backend_;
  DeviceBuffer buffer_;
  Matrix matrix_;
};

/// Every element within one rounding to the matrix's type and `ulps` roundings of the sums in f32,
/// relative to `size` where elements are sums of terms of about that size.
inline void expect_close(const DeviceMatrix& result,
                         const std::function<double(std::int64_t, std::int64_t)>& reference,
                         double ulps, double size = 1) {
  const Data<double> values = result.get();
  const double stored =
      result.matrix().type == DataType::bf16 ? epsilon_of(DataType::bf16) * 0.51 : 0;
  for (std::int64_t i = 0; i < values.rows(); ++i) {
    for (std::int64_t j = 0; j < values.columns(); ++j) {
      const double expected = reference(i, j);
      const double bound = stored * std::abs(expected) +
                           ulps * rounding<float>() * std::max(size, std::abs(expected));
      ASSERT_NEAR(values.at(i, j), expected, bound) << "at (" << i << ", " << j << ")";
    }
  }
}

/// For both types, rows that allow packs and rows that do not, and some seeds of the emulator.
inline void for_each_kind(
    const std::function<void(const CudaBackend&, DataType, std::int64_t)>& test) {
  std::uint64_t seed = 0;
  for (const DataType type : {DataType::bf16, DataType::f32}) {
    for (const std::int64_t gap : {8, 3}) {
      SCOPED_TRACE(std::string(to_string(type)) + ", rows " + std::to_string(gap) + " apart");
      test(CudaBackend(seed++), type, gap);
      ASSERT_EQ(emulator::take_fault(), "");
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace hydraulis
