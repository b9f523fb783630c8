#include <gtest/gtest.h>

#include "tests/kernels/cuda_fixture.h"

namespace hydraulis {
namespace {

TEST(CudaRotary, TableAndRotation) {
  for_each_kind([](const CudaBackend& gpu, DataType type, std::int64_t gap) {
    for (const std::int64_t half : {1, 3, 8, 32}) {
      for (const std::int64_t tokens : {0, 1, 37}) {
        constexpr int kHeads = 3;
        Random random(static_cast<std::uint64_t>(half + tokens));
        std::vector<std::int32_t> positions;
        for (std::int64_t t = 0; t < tokens; ++t) {
          positions.push_back(static_cast<std::int32_t>(random.below(1 << 20)));
        }
        std::vector<double> frequencies;
        for (std::int64_t i = 0; i < half; ++i) {
          frequencies.push_back(
              std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half)));
        }
        DeviceMatrix table(gpu, DataType::f32, tokens, 2 * half, gap);
        gpu->rotary_table(positions, frequencies, table, *gpu.stream);
        const auto angle = [&](std::int64_t t, std::int64_t i) {
          return positions[static_cast<std::size_t>(t)] * frequencies[static_cast<std::size_t>(i)];
        };
        expect_close(
            table,
            [&](std::int64_t t, std::int64_t j) {
              return j < half ? std::cos(angle(t, j)) : std::sin(angle(t, j - half));
            },
            1);
        DeviceMatrix x(gpu, type, tokens, kHeads * 2 * half, gap);
        const auto x0 = x.set(random);
        gpu->rotary(x, kHeads, table, false, *gpu.stream);
        const auto turned = [&](double sign) {
          return [&, sign](std::int64_t t, std::int64_t j) {
            const std::int64_t head = j / (2 * half) * 2 * half;
            const std::int64_t i = j % half;
            const double c = std::cos(angle(t, i));
            const double s = sign * std::sin(angle(t, i));
            const double a = x0.at(t, head + i);
            const double b = x0.at(t, head + half + i);
            return j - head < half ? a * c - b * s : b * c + a * s;
          };
        };
        expect_close(x, turned(1), 8, 4);
        x.set(x0);
        gpu->rotary(x, kHeads, table, true, *gpu.stream);
        expect_close(x, turned(-1), 8, 4);
      }
    }
  });
}

}  // namespace
}  // namespace hydraulis
