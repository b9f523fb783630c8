#include <gtest/gtest.h>

#include "tests/kernels/cuda_fixture.h"

namespace hydraulis {
namespace {

constexpr double kEpsilon = 1e-5;

struct Shape {
  std::int64_t rows, columns;
};
// Heads, rows of a warp and of a block, columns beyond what a thread keeps in registers, odd ones.
constexpr Shape kShapes[] = {{0, 8},    {1, 1},     {3, 7},    {150, 64},
                             {5, 1024}, {20, 1032}, {3, 9000}, {2, 1301}};

double inverse_of(const Data<double>& x, std::int64_t i) {
  double squares = 0;
  for (std::int64_t j = 0; j < x.columns(); ++j) squares += x.at(i, j) * x.at(i, j);
  return 1 / std::sqrt(squares / static_cast<double>(x.columns()) + kEpsilon);
}

TEST(CudaRmsNorm, ForwardAndBackward) {
  for_each_kind([](const CudaBackend& gpu, DataType type, std::int64_t gap) {
    for (const Shape& s : kShapes) {
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(std::to_string(s.rows) + " x " + std::to_string(s.columns));
        Random random(static_cast<std::uint64_t>(s.rows + 1000 * s.columns));
        DeviceMatrix x(gpu, type, s.rows, s.columns, gap);
        DeviceMatrix dy(gpu, type, s.rows, s.columns, gap);
        DeviceMatrix weight(gpu, type, 1, s.columns, gap);
        DeviceMatrix y(gpu, type, s.rows, s.columns, gap);
        DeviceMatrix inverse(gpu, DataType::f32, s.rows, 1, 2);
        DeviceMatrix dx(gpu, type, s.rows, s.columns, gap);
        const DataType of_weight = accumulate ? DataType::f32 : type;
        DeviceMatrix dweight(gpu, of_weight, 1, s.columns, gap);
        const auto x0 = x.set(random, 2);
        const auto dy0 = dy.set(random);
        const auto w0 = weight.set(random);
        if (accumulate) dx.set(0.5);
        dweight.set(-0.25);
        gpu->rms_norm(x, weight, kEpsilon, y, inverse, *gpu.stream);
        gpu->rms_norm_backward(dy, x, weight, inverse, accumulate, dx, dweight, *gpu.stream);
        std::vector<double> r;
        std::vector<double> along;
        for (std::int64_t i = 0; i < s.rows; ++i) {
          r.push_back(inverse_of(x0, i));
          double sum = 0;
          for (std::int64_t j = 0; j < s.columns; ++j) {
            sum += dy0.at(i, j) * w0.at(0, j) * x0.at(i, j);
          }
          along.push_back(sum / static_cast<double>(s.columns));
        }
        const auto row = [](std::int64_t i) { return static_cast<std::size_t>(i); };
        expect_close(
            inverse, [&](std::int64_t i, std::int64_t) { return r[row(i)]; }, 16);
        expect_close(
            y,
            [&](std::int64_t i, std::int64_t j) { return x0.at(i, j) * r[row(i)] * w0.at(0, j); },
            16);
        expect_close(
            dx,
            [&](std::int64_t i, std::int64_t j) {
              const double c = r[row(i)];
              return (accumulate ? 0.5 : 0) + c * dy0.at(i, j) * w0.at(0, j) -
                     c * c * c * x0.at(i, j) * along[row(i)];
            },
            64);
        if (s.rows == 0) continue;
        expect_close(
            dweight,
            [&](std::int64_t, std::int64_t j) {
              double sum = -0.25;
              for (std::int64_t i = 0; i < s.rows; ++i) {
                sum += dy0.at(i, j) * x0.at(i, j) * r[row(i)];
              }
              return sum;
            },
            16, std::sqrt(static_cast<double>(s.rows + 1)));
      }
    }
  });
}

TEST(CudaRmsNorm, GradientMayReplaceItsInput) {
  for (const std::int64_t columns : {40, 1032, 9000, 2100}) {
    for (const std::int64_t gap : {8, 3}) {
      const CudaBackend gpu(static_cast<std::uint64_t>(columns));
      Random random(2);
      DeviceMatrix x(gpu, DataType::bf16, 9, columns, gap);
      DeviceMatrix dy(gpu, DataType::bf16, 9, columns, gap);
      DeviceMatrix apart(gpu, DataType::bf16, 9, columns, gap);
      DeviceMatrix weight(gpu, DataType::bf16, 1, columns, gap);
      DeviceMatrix inverse(gpu, DataType::f32, 9, 1);
      DeviceMatrix dweight(gpu, DataType::f32, 1, columns);
      x.set(random);
      dy.set(random);
      weight.set(random);
      dweight.set(0);
      gpu->rms_norm(x, weight, kEpsilon, apart, inverse, *gpu.stream);
      gpu->rms_norm_backward(dy, x, weight, inverse, false, apart, dweight, *gpu.stream);
      gpu->rms_norm_backward(dy, x, weight, inverse, false, dy, dweight, *gpu.stream);
      EXPECT_EQ(apart.bytes(), dy.bytes()) << columns;
    }
  }
  EXPECT_EQ(emulator::take_fault(), "");
}

// The same call gives the same bits, however threads and blocks come to run.
TEST(CudaRmsNorm, Repeats) {
  std::vector<char> first;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const CudaBackend gpu(seed);
    Random random(3);
    DeviceMatrix x(gpu, DataType::bf16, 500, 64);
    DeviceMatrix dy(gpu, DataType::bf16, 500, 64);
    DeviceMatrix weight(gpu, DataType::bf16, 1, 64);
    DeviceMatrix inverse(gpu, DataType::f32, 500, 1);
    DeviceMatrix dweight(gpu, DataType::f32, 1, 64);
    DeviceMatrix dx(gpu, DataType::bf16, 500, 64);
    x.set(random);
    dy.set(random);
    weight.set(random);
    dweight.set(0);
    gpu->rms_norm(x, weight, kEpsilon, dx, inverse, *gpu.stream);
    gpu->rms_norm_backward(dy, x, weight, inverse, false, dx, dweight, *gpu.stream);
    const auto bytes = dweight.bytes();
    if (seed == 0) first = bytes;
    EXPECT_EQ(bytes, first);
  }
}

}  // namespace
}  // namespace hydraulis
