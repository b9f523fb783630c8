#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace hydraulis::cpu {

template <typename T>
void embedding(int threads, std::span<const std::int32_t> ids, std::int64_t first_row,
               View<const T> table, View<T> out) {
  parallel_rows(threads, out.rows, out.columns, [&](Range rows) {
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
      const std::int64_t row = ids[static_cast<std::size_t>(t)] - first_row;
      if (row >= 0 && row < table.rows) {
        std::copy_n(table.row(row), out.columns, out.row(t));
      } else {
        std::fill_n(out.row(t), out.columns, T(0));
      }
    }
  });
}

template <typename T>
void embedding_backward(int threads, std::span<const std::int32_t> ids, std::int64_t first_row,
                        View<const T> dout, View<T> dtable) {
  // Threads share the columns, whole cache lines each, so that every sum keeps the order of t.
  const std::int64_t lines = (dout.columns + kLanes<T> - 1) / kLanes<T>;
  parallel_rows(threads, lines, dout.rows * kLanes<T>, [&](Range part) {
    const std::int64_t begin = part.begin * kLanes<T>;
    const std::int64_t count = std::min(dout.columns, part.end * kLanes<T>) - begin;
    for (std::int64_t t = 0; t < dout.rows; ++t) {
      const std::int64_t row = ids[static_cast<std::size_t>(t)] - first_row;
      if (row < 0 || row >= dtable.rows) continue;
      const T* from = dout.row(t) + begin;
      T* to = dtable.row(row) + begin;
      for_each_vector<T>(count, [&](std::int64_t j, auto lanes) {
        store(to + j, load(to + j, lanes) + load(from + j, lanes), lanes);
      });
    }
  });
}

#define HYDRAULIS_INSTANTIATE(T)                                                              \
  template void embedding<T>(int, std::span<const std::int32_t>, std::int64_t, View<const T>, \
                             View<T>);                                                        \
  template void embedding_backward<T>(int, std::span<const std::int32_t>, std::int64_t,       \
                                      View<const T>, View<T>);
HYDRAULIS_INSTANTIATE(float)
HYDRAULIS_INSTANTIATE(double)
#undef HYDRAULIS_INSTANTIATE

}  // namespace hydraulis::cpu
