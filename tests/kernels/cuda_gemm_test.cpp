#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/cuda_fixture.h"

namespace hydraulis {
namespace {

struct Case {
  std::int64_t m, n, k;
};

void check(const CudaBackend& gpu, DataType type, DataType type_of_c, std::int64_t gap,
           const Case& c, bool transpose_a, bool transpose_b, double alpha, double beta) {
  SCOPED_TRACE(testing::Message() << c.m << "x" << c.n << "x" << c.k << " " << transpose_a
                                  << transpose_b << " alpha " << alpha << " beta " << beta);
  Random random(static_cast<std::uint64_t>(c.m * 1000003 + c.n * 1009 + c.k));
  DeviceMatrix a(gpu, type, transpose_a ? c.k : c.m, transpose_a ? c.m : c.k, gap);
  DeviceMatrix b(gpu, type, transpose_b ? c.n : c.k, transpose_b ? c.k : c.n, gap);
  DeviceMatrix out(gpu, type_of_c, c.m, c.n, gap);
  const auto a0 = a.set(random);
  const auto b0 = b.set(random);
  Data<double> before(c.m, c.n);
  if (beta != 0) before.fill([&](std::int64_t i, std::int64_t j) { return 0.25 * double(i - j); });
  if (beta != 0) out.set(before);
  gpu->gemm(transpose_a, transpose_b, alpha, a, b, beta, out, *gpu.stream);
  const double root = std::sqrt(static_cast<double>(c.k));
  expect_close(
      out,
      [&](std::int64_t i, std::int64_t j) {
        double sum = 0;
        for (std::int64_t k = 0; k < c.k; ++k) {
          sum +=
              (transpose_a ? a0.at(k, i) : a0.at(i, k)) * (transpose_b ? b0.at(j, k) : b0.at(k, j));
        }
        return alpha * sum + (beta == 0 ? 0 : beta * before.at(i, j));
      },
      8 + 2 * root, std::abs(alpha) * root + 1);
}

TEST(CudaGemm, TransposesScalesAndAdds) {
  for_each_kind([](const CudaBackend& gpu, DataType type, std::int64_t gap) {
    for (const Case& c : {Case{1, 1, 1}, Case{1, 7, 5}, Case{13, 1, 17}, Case{14, 32, 64}}) {
      for (const bool ta : {false, true}) {
        for (const bool tb : {false, true}) {
          check(gpu, type, type, gap, c, ta, tb, 1, 0);
          check(gpu, type, DataType::f32, gap, c, ta, tb, -0.5, 1);
        }
      }
    }
  });
}

TEST(CudaGemm, EmptySidesAndDepth) {
  for_each_kind([](const CudaBackend& gpu, DataType type, std::int64_t gap) {
    for (const Case& c : {Case{0, 4, 5}, Case{4, 0, 5}, Case{4, 5, 0}, Case{0, 0, 0}}) {
      check(gpu, type, type, gap, c, false, false, 1, 0);
      check(gpu, type, type, gap, c, true, true, 1, -2);
    }
  });
}

// Parts of larger matrices, as tensor parallelism cuts them.
TEST(CudaGemm, Columns) {
  const CudaBackend gpu;
  Random random(3);
  DeviceMatrix a(gpu, DataType::bf16, 6, 20);
  DeviceMatrix b(gpu, DataType::bf16, 9, 11);
  DeviceMatrix c(gpu, DataType::f32, 6, 30);
  const auto a0 = a.set(random);
  const auto b0 = b.set(random);
  const auto c0 = c.set(random);
  gpu->gemm(false, true, 1, a.matrix().column_range(3, 11), b, 0, c.matrix().column_range(7, 9),
            *gpu.stream);
  expect_close(
      c,
      [&](std::int64_t i, std::int64_t j) {
        if (j < 7 || j >= 16) return c0.at(i, j);
        double sum = 0;
        for (std::int64_t k = 0; k < 11; ++k) sum += a0.at(i, 3 + k) * b0.at(j - 7, k);
        return sum;
      },
      16, 4);
}

TEST(CudaGemm, UnlikeShapesAreRefused) {
  const CudaBackend gpu;
  DeviceMatrix a(gpu, DataType::bf16, 6, 20);
  DeviceMatrix c(gpu, DataType::f32, 6, 30);
  DeviceMatrix half(gpu, DataType::bf16, 6, 6);
  EXPECT_THROW(gpu->gemm(false, false, 1, a, a, 0, c, *gpu.stream), std::logic_error);
  EXPECT_THROW(gpu->gemm(false, true, 1, c, c, 0, half, *gpu.stream), std::logic_error);
}

#ifdef HYDRAULIS_CUDA_EMULATOR
// The emulated library sees what kernels see: operands that were never written.
TEST(CudaGemm, UnwrittenOperandsAreFound) {
  if (!emulator::kShadow) GTEST_SKIP() << "needs the shadow";
  EXPECT_THAT(emulator::fault_of([] {
                const CudaBackend gpu;
                DeviceMatrix a(gpu, DataType::bf16, 6, 6);
                DeviceMatrix c(gpu, DataType::f32, 6, 6);
                gpu->gemm(false, false, 1, a, a, 0, c, *gpu.stream);
                gpu.device->synchronize(*gpu.stream);
              }),
              testing::HasSubstr("uninitialised"));
}
#endif

}  // namespace
}  // namespace hydraulis
