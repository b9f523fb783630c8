#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/simd.h"

namespace hydraulis::cpu {

/// Rows of a register tile that is `vectors` vectors wide: its sums, one row of b and one element
/// of a must fit into the registers.
constexpr int tile_rows(int vectors) {
  return std::min(16, (kVectorRegisters - 1 - vectors) / vectors);
}

/// sums[i][v] = Σ_k a[i·a_row + k·a_step] · (vector v of b's row k), for k < depth.
template <typename T, int rows, int vectors>
HYDRAULIS_INLINE void multiply_tile(const T* a, std::int64_t a_row, std::int64_t a_step, const T* b,
                                    std::int64_t b_step, std::int64_t depth,
                                    Vector<T> (&sums)[rows][vectors]) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[i][v] = Vector<T>{};
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector<T> row[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) row[v] = load(b + v * kLanes<T>);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const Vector<T> x = broadcast(a[i * a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[i][v] += x * row[v];
    }
    a += a_step;
    b += b_step;
  }
}

namespace detail {

template <typename T, int rows, int vectors, typename Use>
void product_tile(const T* a, std::int64_t a_row, std::int64_t a_step, const T* b,
                  std::int64_t b_step, std::int64_t depth, std::int64_t first_row, int first_vector,
                  Use use) {
  Vector<T> sums[rows][vectors];
  multiply_tile<T, rows, vectors>(a, a_row, a_step, b, b_step, depth, sums);
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) use(first_row + i, first_vector + v, sums[i][v]);
  }
}

template <typename T, int vectors, typename Use>
void product_columns(std::int64_t rows, const T* a, std::int64_t a_row, std::int64_t a_step,
                     const T* b, std::int64_t b_step, std::int64_t depth, int first_vector,
                     Use use) {
  constexpr int most = tile_rows(vectors);
  std::int64_t i = 0;
  const auto tiles_of = [&]<int height>() {
    for (; i + height <= rows; i += height) {
      product_tile<T, height, vectors>(a + i * a_row, a_row, a_step, b, b_step, depth, i,
                                       first_vector, use);
    }
  };
  tiles_of.template operator()<most>();
  if constexpr (most > 8) tiles_of.template operator()<8>();
  if constexpr (most > 4) tiles_of.template operator()<4>();
  if constexpr (most > 2) tiles_of.template operator()<2>();
  if constexpr (most > 1) tiles_of.template operator()<1>();
}

}  // namespace detail

/// A small product that stays in cache: use(i, v, Σ_k a[i·a_row + k·a_step]·b[k·b_step + vector v])
/// for all rows i < rows and vectors v < vectors.
template <typename T, typename Use>
void small_product(std::int64_t rows, int vectors, const T* a, std::int64_t a_row,
                   std::int64_t a_step, const T* b, std::int64_t b_step, std::int64_t depth,
                   Use use) {
  int v = 0;
  for (; v + 4 <= vectors; v += 4) {
    detail::product_columns<T, 4>(rows, a, a_row, a_step, b + v * kLanes<T>, b_step, depth, v, use);
  }
  b += v * kLanes<T>;
  switch (vectors - v) {
    case 3:
      return detail::product_columns<T, 3>(rows, a, a_row, a_step, b, b_step, depth, v, use);
    case 2:
      return detail::product_columns<T, 2>(rows, a, a_row, a_step, b, b_step, depth, v, use);
    case 1:
      return detail::product_columns<T, 1>(rows, a, a_row, a_step, b, b_step, depth, v, use);
    default:
      return;
  }
}

}  // namespace hydraulis::cpu
