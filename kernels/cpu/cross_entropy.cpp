#include <cstdint>
#include <limits>
#include <span>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace hydraulis::cpu {
namespace {

/// An exponential costs as much as a few plain elements.
constexpr std::int64_t kExpCost = 4;

}  // namespace

template <typename T>
void cross_entropy_max(int threads, View<const T> logits, std::int64_t vocabulary,
                       View<T> row_max) {
  parallel_rows(threads, logits.rows, vocabulary, [&](Range rows) {
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
      const T* row = logits.row(t);
      constexpr std::int64_t lanes = kLanes<T>;
      const Vector<T> lowest = broadcast(-std::numeric_limits<T>::infinity());
      Vector<T> most[4] = {lowest, lowest, lowest, lowest};
      std::int64_t j = 0;
      for (; j + 4 * lanes <= vocabulary; j += 4 * lanes) {
        for (int u = 0; u < 4; ++u) most[u] = greater(load(row + j + u * lanes), most[u]);
      }
      T result = max_of_lanes<T>(greater(greater(most[0], most[1]), greater(most[2], most[3])));
      for (; j < vocabulary; ++j) result = row[j] > result ? row[j] : result;
      row_max.row(t)[0] = result;
    }
  });
}

template <typename T>
void cross_entropy_sums(int threads, View<const T> logits, std::int64_t vocabulary,
                        std::int64_t first_column, std::span<const std::int32_t> targets,
                        View<const T> row_max, View<T> sums) {
  parallel_rows(threads, logits.rows, kExpCost * vocabulary, [&](Range rows) {
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
      const T* row = logits.row(t);
      const T most = row_max.row(t)[0];
      // A whole row of −∞ (or no columns at all) has no greatest to subtract.
      const T shift = most == -std::numeric_limits<T>::infinity() ? T(0) : most;
      constexpr std::int64_t lanes = kLanes<T>;
      Vector<T> partial[2] = {};
      std::int64_t j = 0;
      for (; j + 2 * lanes <= vocabulary; j += 2 * lanes) {
        partial[0] += exp<T>(load(row + j) - shift);
        partial[1] += exp<T>(load(row + j + lanes) - shift);
      }
      for (; j < vocabulary; j += lanes) {
        const int count = static_cast<int>(std::min<std::int64_t>(lanes, vocabulary - j));
        Vector<T> rest = broadcast(-std::numeric_limits<T>::infinity());
        std::memcpy(&rest, row + j, static_cast<std::size_t>(count) * sizeof(T));
        partial[0] += exp<T>(rest - shift);
      }
      const std::int64_t target = targets[static_cast<std::size_t>(t)];
      const std::int64_t column = target - first_column;
      const bool here = target >= 0 && column >= 0 && column < vocabulary;
      sums.row(t)[0] = sum_of_lanes<T>(partial[0] + partial[1]);
      sums.row(t)[1] = here ? row[column] - shift : T(0);
    }
  });
}

template <typename T>
void cross_entropy_backward(int threads, View<T> logits, std::int64_t vocabulary,
                            std::int64_t first_column, std::span<const std::int32_t> targets,
                            View<const T> row_max, View<const T> sums) {
  parallel_rows(threads, logits.rows, kExpCost * logits.columns, [&](Range rows) {
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
      T* row = logits.row(t);
      const std::int64_t target = targets[static_cast<std::size_t>(t)];
      if (target < 0) {
        std::fill_n(row, logits.columns, T(0));
        continue;
      }
      const T most = row_max.row(t)[0];
      const T shift = most == -std::numeric_limits<T>::infinity() ? T(0) : most;
      const T sum = sums.row(t)[0];
      const T factor = sum == T(0) ? T(0) : T(1) / sum;
      for_each_vector<T>(vocabulary, [&](std::int64_t j, auto lanes) {
        store(row + j, exp<T>(load(row + j, lanes) - shift) * factor, lanes);
      });
      std::fill(row + vocabulary, row + logits.columns, T(0));
      const std::int64_t column = target - first_column;
      if (column >= 0 && column < vocabulary) row[column] -= T(1);
    }
  });
}

#define HYDRAULIS_INSTANTIATE(T)                                                              \
  template void cross_entropy_max<T>(int, View<const T>, std::int64_t, View<T>);              \
  template void cross_entropy_sums<T>(int, View<const T>, std::int64_t, std::int64_t,         \
                                      std::span<const std::int32_t>, View<const T>, View<T>); \
  template void cross_entropy_backward<T>(int, View<T>, std::int64_t, std::int64_t,           \
                                          std::span<const std::int32_t>, View<const T>,       \
                                          View<const T>);
HYDRAULIS_INSTANTIATE(float)
HYDRAULIS_INSTANTIATE(double)
#undef HYDRAULIS_INSTANTIATE

}  // namespace hydraulis::cpu
