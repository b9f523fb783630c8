#include <gtest/gtest.h>

#include "tests/kernels/cuda_fixture.h"

namespace hydraulis {
namespace {

TEST(CudaEmbedding, ForwardAndBackward) {
  for_each_kind([](const CudaBackend& gpu, DataType type, std::int64_t gap) {
    for (const std::int64_t columns : {1, 24, 600}) {
      for (const std::int64_t tokens : {0, 1, 211}) {
        constexpr std::int64_t kFirst = 100;
        constexpr std::int64_t kRows = 9;
        Random random(static_cast<std::uint64_t>(columns + tokens));
        std::vector<std::int32_t> ids;
        for (std::int64_t t = 0; t < tokens; ++t) {
          // One token again and again, others that live elsewhere, padding.
          const auto draw = static_cast<std::int32_t>(random.below(16));
          ids.push_back(draw < 8 ? 103 : draw == 15 ? -1 : 92 + 2 * draw);
        }
        DeviceMatrix table(gpu, type, kRows, columns, gap);
        DeviceMatrix out(gpu, type, tokens, columns, gap);
        const auto rows = table.set(random);
        gpu->embedding(ids, kFirst, table, out, *gpu.stream);
        const auto row_of = [&](std::int64_t t) {
          const std::int64_t row = ids[static_cast<std::size_t>(t)] - kFirst;
          return row >= 0 && row < kRows ? row : -1;
        };
        expect_close(
            out,
            [&](std::int64_t t, std::int64_t j) {
              return row_of(t) < 0 ? 0 : rows.at(row_of(t), j);
            },
            0);
        for (const DataType of_table : {type, DataType::f32}) {
          DeviceMatrix dout(gpu, type, tokens, columns, gap);
          DeviceMatrix dtable(gpu, of_table, kRows, columns, gap);
          const auto gradient = dout.set(random);
          const auto before = dtable.set(random);
          gpu->embedding_backward(ids, kFirst, dout, dtable, *gpu.stream);
          expect_close(
              dtable,
              [&](std::int64_t row, std::int64_t j) {
                double sum = before.at(row, j);
                for (std::int64_t t = 0; t < tokens; ++t) {
                  if (row_of(t) == row) sum += gradient.at(t, j);
                }
                return sum;
              },
              16, 4);
        }
      }
    }
  });
}

}  // namespace
}  // namespace hydraulis
