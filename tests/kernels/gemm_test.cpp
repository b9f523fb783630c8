#include <gtest/gtest.h>
#include <sys/mman.h>

#include "tests/kernels/compute_fixture.h"

namespace hydraulis {
namespace {

struct Case {
  std::int64_t m, n, k;
};

template <typename T>
class Gemm : public testing::Test {
 protected:
  static void check(const Case& c, bool transpose_a, bool transpose_b, double alpha, double beta,
                    int threads) {
    SCOPED_TRACE(testing::Message() << c.m << "x" << c.n << "x" << c.k << " " << transpose_a
                                    << transpose_b << " alpha " << alpha << " beta " << beta);
    const Backend cpu(threads);
    Random random(7, static_cast<std::uint64_t>(c.m * 1000003 + c.n * 1009 + c.k));
    Data<T> a(transpose_a ? c.k : c.m, transpose_a ? c.m : c.k);
    Data<T> b(transpose_b ? c.n : c.k, transpose_b ? c.k : c.n, 5);
    Data<T> out(c.m, c.n, 1);
    a.fill(random);
    b.fill(random);
    Data<T> before(c.m, c.n, 1);
    if (beta != 0) {
      out.fill(random);
      before.memory = out.memory;
    }
    cpu->gemm(transpose_a, transpose_b, alpha, a, b, beta, out, *cpu.stream);
    const double root = std::sqrt(static_cast<double>(c.k));
    expect_matrix<T>(
        out,
        [&](std::int64_t i, std::int64_t j) {
          long double sum = 0;
          for (std::int64_t k = 0; k < c.k; ++k) {
            sum +=
                (transpose_a ? a.at(k, i) : a.at(i, k)) * (transpose_b ? b.at(j, k) : b.at(k, j));
          }
          return alpha * static_cast<double>(sum) + (beta == 0 ? 0 : beta * before.at(i, j));
        },
        8 + 2 * root, std::abs(alpha) * root + 1);
  }
};
TYPED_TEST_SUITE(Gemm, Precisions);

TYPED_TEST(Gemm, AgreesWithADoublePrecisionSum) {
  const Case cases[] = {{1, 1, 1},     {1, 7, 5},    {3, 1, 300},  {13, 33, 17},  {14, 32, 256},
                        {15, 31, 257}, {64, 48, 80}, {100, 70, 3}, {29, 65, 600}, {200, 513, 31}};
  for (const Case& c : cases) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        this->check(c, transpose_a, transpose_b, 1, 0, 2);
      }
    }
  }
}

TYPED_TEST(Gemm, ScalesAndAdds) {
  for (const Case& c : {Case{15, 33, 20}, Case{64, 64, 64}, Case{30, 40, 520}}) {
    this->check(c, false, false, 1, 1, 2);
    this->check(c, true, false, -0.5, 2, 1);
    this->check(c, false, true, 0, 0.5, 2);
    this->check(c, true, true, 3, -1, 3);
  }
}

TYPED_TEST(Gemm, EmptySidesAndDepth) {
  for (const Case& c : {Case{0, 4, 5}, Case{4, 0, 5}, Case{4, 5, 0}, Case{0, 0, 0}}) {
    this->check(c, false, false, 1, 0, 2);
    this->check(c, true, true, 1, 1, 2);
  }
}

// Larger than what is packed at a time in either direction.
TYPED_TEST(Gemm, BlocksInEveryDirection) {
  const Backend cpu;
  const std::int64_t m = 700;
  const std::int64_t n = 900;
  const std::int64_t k = 7000;
  Random random(3);
  Data<TypeParam> a(m, k);
  Data<TypeParam> b(k, n);
  Data<TypeParam> c(m, n);
  // Sums of small integers are exact, so every element must be too.
  a.fill([&](std::int64_t, std::int64_t) { return static_cast<double>(random.below(3)) - 1; });
  b.fill([&](std::int64_t, std::int64_t) { return static_cast<double>(random.below(3)) - 1; });
  cpu->gemm(false, false, 1, a, b, 0, c, *cpu.stream);
  for (int trial = 0; trial < 500; ++trial) {
    const auto i = static_cast<std::int64_t>(random.below(m));
    const auto j = static_cast<std::int64_t>(random.below(n));
    double sum = 0;
    for (std::int64_t step = 0; step < k; ++step) sum += a.at(i, step) * b.at(step, j);
    ASSERT_EQ(c.at(i, j), sum) << i << ", " << j;
  }
}

TYPED_TEST(Gemm, SameBitsForAnyThreads) {
  Random random(11);
  Data<TypeParam> a(150, 300);
  Data<TypeParam> b(300, 170);
  a.fill(random);
  b.fill(random);
  Data<TypeParam> first(150, 170);
  {
    const Backend cpu(1);
    cpu->gemm(false, false, 1, a, b, 0, first, *cpu.stream);
  }
  for (const int threads : {1, 2, 3, 4}) {
    const Backend cpu(threads);
    Data<TypeParam> again(150, 170);
    cpu->gemm(false, false, 1, a, b, 0, again, *cpu.stream);
    EXPECT_TRUE(first.same_bits(again)) << threads;
  }
}

TYPED_TEST(Gemm, RefusesWrongShapes) {
  const Backend cpu;
  const Data<TypeParam> a(3, 4);
  const Data<TypeParam> b(5, 6);
  Data<TypeParam> c(3, 6);
  EXPECT_THROW(cpu->gemm(false, false, 1, a, b, 0, c, *cpu.stream), std::logic_error);
  const Data<double> wide(4, 6);
  const Data<float> narrow(3, 4);
  EXPECT_THROW(cpu->gemm(false, false, 1, narrow, wide, 0, c, *cpu.stream), std::logic_error);
}

// Rows so far apart that offsets pass 2^31 elements (and 2^33 bytes): only the pages touched exist.
TEST(GemmOffsets, PassTwoToThe31) {
  const std::int64_t stride = std::int64_t{1} << 30;
  const std::int64_t rows = 5;
  const std::int64_t columns = 40;
  const auto bytes = static_cast<std::size_t>(((rows - 1) * stride + columns) * 4);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const Matrix far{memory, DataType::f32, rows, columns, stride};
  Random random(5);
  Data<float> near(rows, columns);
  near.fill(random);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) far.as<float>()[i * stride + j] = near(i, j);
  }
  const Backend cpu;
  Data<float> from_far(rows, rows);
  Data<float> from_near(rows, rows);
  cpu->gemm(false, true, 1, far, far, 0, from_far, *cpu.stream);
  cpu->gemm(false, true, 1, near, near, 0, from_near, *cpu.stream);
  EXPECT_TRUE(from_far.same_bits(from_near));
  cpu->add(far, far, far, *cpu.stream);
  Data<float> back(rows, columns);
  cpu->convert(far, back, *cpu.stream);
  expect_matrix<float>(
      back, [&](std::int64_t i, std::int64_t j) { return 2 * near.at(i, j); }, 0);
  munmap(memory, bytes);
}

}  // namespace
}  // namespace hydraulis
