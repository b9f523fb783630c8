#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace hydraulis::cpu {
namespace {

constexpr std::int64_t kBlock = 4096;

/// body(row, first column, count) over pieces of at most kBlock columns, shared among threads even
/// where there is one long row.
template <typename Body>
void for_each_piece(int threads, std::int64_t rows, std::int64_t columns, Body body) {
  const std::int64_t pieces = (columns + kBlock - 1) / kBlock;
  parallel_rows(threads, rows * pieces, std::min(columns, kBlock), [&](Range range) {
    for (std::int64_t piece = range.begin; piece < range.end; ++piece) {
      const std::int64_t first = piece % pieces * kBlock;
      body(piece, piece / pieces, first, std::min(kBlock, columns - first));
    }
  });
}

double pairwise_sum(const double* x, std::size_t n) {
  if (n <= 8) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += x[i];
    return sum;
  }
  return pairwise_sum(x, n / 2) + pairwise_sum(x + n / 2, n - n / 2);
}

/// Σ x² of at most kBlock elements: 16 sums side by side, then pairwise.
template <typename T>
double block_squares(const T* x, std::int64_t n) {
  constexpr std::int64_t width = 16;
  double sums[width] = {};
  std::int64_t i = 0;
  for (; i + width <= n; i += width) {
#pragma omp simd
    for (std::int64_t u = 0; u < width; ++u) {
      const auto value = static_cast<double>(x[i + u]);
      sums[u] += value * value;
    }
  }
  for (; i < n; ++i) sums[i % width] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return pairwise_sum(sums, width);
}

}  // namespace

template <typename T>
void add(int threads, View<const T> a, View<const T> b, View<T> out) {
  for_each_piece(threads, out.rows, out.columns,
                 [&](std::int64_t, std::int64_t row, std::int64_t first, std::int64_t count) {
                   const T* left = a.row(row) + first;
                   const T* right = b.row(row) + first;
                   T* to = out.row(row) + first;
                   for_each_vector<T>(count, [&](std::int64_t i, auto lanes) {
                     store(to + i, load(left + i, lanes) + load(right + i, lanes), lanes);
                   });
                 });
}

template <typename T>
void add_scaled(int threads, T scale, View<const T> x, View<T> y) {
  for_each_piece(threads, y.rows, y.columns,
                 [&](std::int64_t, std::int64_t row, std::int64_t first, std::int64_t count) {
                   const T* from = x.row(row) + first;
                   T* to = y.row(row) + first;
                   for_each_vector<T>(count, [&](std::int64_t i, auto lanes) {
                     store(to + i, load(to + i, lanes) + scale * load(from + i, lanes), lanes);
                   });
                 });
}

template <typename From, typename To>
void convert(int threads, View<const From> from, View<To> to) {
  for_each_piece(threads, to.rows, to.columns,
                 [&](std::int64_t, std::int64_t row, std::int64_t first, std::int64_t count) {
                   const From* source = from.row(row) + first;
                   To* target = to.row(row) + first;
#pragma omp simd
                   for (std::int64_t i = 0; i < count; ++i) target[i] = static_cast<To>(source[i]);
                 });
}

void round_to_bf16(int threads, View<const float> from, View<std::uint16_t> to) {
  for_each_piece(threads, to.rows, to.columns,
                 [&](std::int64_t, std::int64_t row, std::int64_t first, std::int64_t count) {
                   const float* source = from.row(row) + first;
                   std::uint16_t* target = to.row(row) + first;
#pragma omp simd
                   for (std::int64_t i = 0; i < count; ++i) {
                     const auto bits = std::bit_cast<std::uint32_t>(source[i]);
                     const std::uint32_t up = 0x7fffU + (bits >> 16 & 1U);
                     const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
                     target[i] =
                         static_cast<std::uint16_t>((nan ? bits | 0x400000U : bits + up) >> 16);
                   }
                 });
}

template <typename T>
double sum_squares(int threads, View<const T> x) {
  // Whole matrices without gaps are one row: fewer, fuller blocks.
  const bool dense = x.stride == x.columns;
  const std::int64_t rows = dense ? 1 : x.rows;
  const std::int64_t columns = dense ? x.rows * x.columns : x.columns;
  const std::int64_t blocks = rows * ((columns + kBlock - 1) / kBlock);
  std::vector<double> sums(static_cast<std::size_t>(blocks));
  for_each_piece(threads, rows, columns,
                 [&](std::int64_t block, std::int64_t row, std::int64_t first, std::int64_t count) {
                   sums[static_cast<std::size_t>(block)] = block_squares(x.row(row) + first, count);
                 });
  return pairwise_sum(sums.data(), sums.size());
}

template void convert<float, float>(int, View<const float>, View<float>);
template void convert<float, double>(int, View<const float>, View<double>);
template void convert<double, float>(int, View<const double>, View<float>);
template void convert<double, double>(int, View<const double>, View<double>);
#define HYDRAULIS_INSTANTIATE(T)                                    \
  template void add<T>(int, View<const T>, View<const T>, View<T>); \
  template void add_scaled<T>(int, T, View<const T>, View<T>);      \
  template double sum_squares<T>(int, View<const T>);
HYDRAULIS_INSTANTIATE(float)
HYDRAULIS_INSTANTIATE(double)
#undef HYDRAULIS_INSTANTIATE

}  // namespace hydraulis::cpu
