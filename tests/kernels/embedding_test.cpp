#include <gtest/gtest.h>

#include "tests/kernels/compute_fixture.h"

namespace hydraulis {
namespace {

template <typename T>
class Embedding : public testing::Test {};
TYPED_TEST_SUITE(Embedding, Precisions);

// Two devices hold rows 0…6 and 7…12; the sum of their outputs is the whole lookup.
TYPED_TEST(Embedding, EachPartLooksUpItsOwnRows) {
  using T = TypeParam;
  const Backend cpu;
  for (const std::int64_t h : {1, 16, 37, 260}) {
    Random random(h);
    Data<T> table(13, h);
    table.fill(random);
    std::vector<std::int32_t> ids = {0, 12, -1, 6, 7, 7, 3};
    for (int i = 0; i < 300; ++i) ids.push_back(static_cast<std::int32_t>(random.below(14)) - 1);
    const auto t = static_cast<std::int64_t>(ids.size());
    Data<T> first(t, h);
    Data<T> second(t, h);
    cpu->embedding(ids, 0, table.matrix.row_range(0, 7), first, *cpu.stream);
    cpu->embedding(ids, 7, table.matrix.row_range(7, 6), second, *cpu.stream);
    const auto expected = [&](std::int64_t begin, std::int64_t end) {
      return [&, begin, end](std::int64_t i, std::int64_t j) {
        const std::int64_t id = ids[static_cast<std::size_t>(i)];
        return id >= begin && id < end ? table.at(id, j) : 0.0;
      };
    };
    expect_matrix<T>(first, expected(0, 7), 0);
    expect_matrix<T>(second, expected(7, 13), 0);

    Data<T> dout(t, h);
    dout.fill(random);
    Data<T> gradient(6, h);
    gradient.fill(0.5);
    cpu->embedding_backward(ids, 7, dout, gradient, *cpu.stream);
    expect_matrix<T>(
        gradient,
        [&](std::int64_t row, std::int64_t j) {
          double sum = 0.5;
          for (std::int64_t i = 0; i < t; ++i) {
            if (ids[static_cast<std::size_t>(i)] == row + 7) sum += dout.at(i, j);
          }
          return sum;
        },
        16, 4);
  }
}

// Sums run in the order of the tokens, so threads make no difference at all.
TYPED_TEST(Embedding, SameGradientForAnyThreads) {
  using T = TypeParam;
  Random random(6);
  std::vector<std::int32_t> ids(1000);
  for (auto& id : ids) id = static_cast<std::int32_t>(random.below(5));
  Data<T> dout(1000, 100);
  dout.fill(random);
  Data<T> first(5, 100);
  first.fill(0);
  Data<T> again = first;
  {
    const Backend cpu(1);
    cpu->embedding_backward(ids, 0, dout, first, *cpu.stream);
  }
  const Backend cpu(4);
  cpu->embedding_backward(ids, 0, dout, again, *cpu.stream);
  EXPECT_TRUE(first.same_bits(again));
}

}  // namespace
}  // namespace hydraulis
