#include <gtest/gtest.h>

#include "tests/kernels/cuda_fixture.h"

namespace hydraulis {
namespace {

struct Shape {
  std::int64_t rows, columns;
};
constexpr Shape kShapes[] = {{0, 8}, {1, 1}, {3, 7}, {5, 64}, {2, 2056}, {300, 16}};

TEST(CudaElementwise, Add) {
  for_each_kind([](const CudaBackend& gpu, DataType type, std::int64_t gap) {
    for (const Shape& s : kShapes) {
      Random random(static_cast<std::uint64_t>(s.columns));
      DeviceMatrix a(gpu, type, s.rows, s.columns, gap);
      DeviceMatrix b(gpu, type, s.rows, s.columns, 16);
      DeviceMatrix out(gpu, type, s.rows, s.columns, gap);
      const auto x = a.set(random);
      const auto y = b.set(random);
      gpu->add(a, b, out, *gpu.stream);
      gpu->add(a, b, b, *gpu.stream);  // in place
      const auto sum = [&](std::int64_t i, std::int64_t j) { return x.at(i, j) + y.at(i, j); };
      expect_close(out, sum, 1);
      expect_close(b, sum, 1);
    }
  });
}

TEST(CudaElementwise, ConvertRoundsToTheNearest) {
  for_each_kind([](const CudaBackend& gpu, DataType type, std::int64_t gap) {
    for (const DataType to : {DataType::f32, DataType::bf16}) {
      for (const Shape& s : kShapes) {
        Random random(static_cast<std::uint64_t>(s.columns));
        DeviceMatrix a(gpu, type, s.rows, s.columns, gap);
        DeviceMatrix b(gpu, to, s.rows, s.columns, gap);
        const auto x = a.set(random, 100);
        gpu->convert(a, b, *gpu.stream);
        const auto result = b.get();
        for (std::int64_t i = 0; i < s.rows; ++i) {
          for (std::int64_t j = 0; j < s.columns; ++j) {
            ASSERT_EQ(result.at(i, j), rounded(to, x.at(i, j)));
          }
        }
      }
    }
  });
}

TEST(CudaElementwise, SumSquares) {
  for_each_kind([](const CudaBackend& gpu, DataType type, std::int64_t gap) {
    for (const Shape& s : {Shape{0, 8}, Shape{1, 1}, Shape{3, 7}, Shape{2, 40000}, Shape{700, 9}}) {
      for (const std::int64_t apart : {gap, std::int64_t{0}}) {
        Random random(static_cast<std::uint64_t>(s.columns));
        DeviceMatrix a(gpu, type, s.rows, s.columns, apart);
        const auto x = a.set(random);
        double expected = 0;
        for (std::int64_t i = 0; i < s.rows; ++i) {
          for (std::int64_t j = 0; j < s.columns; ++j) expected += x.at(i, j) * x.at(i, j);
        }
        const double sum = gpu->sum_squares(a, *gpu.stream);
        ASSERT_NEAR(sum, expected, 1e-12 * expected);
        ASSERT_EQ(sum, gpu->sum_squares(a, *gpu.stream));
      }
    }
  });
}

TEST(CudaElementwise, WrongArgumentsAreRefused) {
  const CudaBackend gpu;
  DeviceMatrix a(gpu, DataType::f32, 2, 8);
  DeviceMatrix b(gpu, DataType::bf16, 2, 8);
  DeviceMatrix c(gpu, DataType::f32, 2, 9);
  EXPECT_THROW(gpu->add(a, b, a, *gpu.stream), std::logic_error);
  EXPECT_THROW(gpu->add(a, c, a, *gpu.stream), std::logic_error);
}

TEST(CudaSwiglu, ForwardAndBackward) {
  for_each_kind([](const CudaBackend& gpu, DataType type, std::int64_t gap) {
    for (const Shape& s : kShapes) {
      Random random(static_cast<std::uint64_t>(s.columns));
      DeviceMatrix gate_up(gpu, type, s.rows, 2 * s.columns, gap);
      DeviceMatrix dout(gpu, type, s.rows, s.columns, gap);
      DeviceMatrix out(gpu, type, s.rows, s.columns, gap);
      DeviceMatrix gradient(gpu, type, s.rows, 2 * s.columns, gap);
      const auto x = gate_up.set(random, 3);
      const auto d = dout.set(random);
      gpu->swiglu(gate_up, out, *gpu.stream);
      gpu->swiglu_backward(dout, gate_up, gradient, *gpu.stream);
      gpu->swiglu_backward(dout, gate_up, gate_up, *gpu.stream);  // in place
      const auto sigmoid = [](double g) { return 1 / (1 + std::exp(-g)); };
      expect_close(
          out,
          [&](std::int64_t i, std::int64_t j) {
            const double g = x.at(i, j);
            return g * sigmoid(g) * x.at(i, s.columns + j);
          },
          16);
      const auto expected = [&](std::int64_t i, std::int64_t j) {
        const std::int64_t c = j % s.columns;
        const double g = x.at(i, c);
        const double sg = sigmoid(g);
        return j < s.columns ? d.at(i, c) * x.at(i, s.columns + c) * sg * (1 + g * (1 - sg))
                             : d.at(i, c) * g * sg;
      };
      expect_close(gradient, expected, 32, 4);
      expect_close(gate_up, expected, 32, 4);
    }
  });
}

}  // namespace
}  // namespace hydraulis
