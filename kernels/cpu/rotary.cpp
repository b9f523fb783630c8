#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace hydraulis::cpu {

template <typename T>
void rotary_table(int threads, std::span<const std::int32_t> positions,
                  std::span<const double> inverse_frequencies, View<T> table) {
  const auto half = static_cast<std::int64_t>(inverse_frequencies.size());
  // A sine and a cosine cost as much as dozens of plain elements.
  parallel_rows(threads, table.rows, 32 * table.columns, [&](Range rows) {
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
      const auto position = static_cast<double>(positions[static_cast<std::size_t>(t)]);
      T* to = table.row(t);
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = position * inverse_frequencies[static_cast<std::size_t>(i)];
        to[i] = static_cast<T>(std::cos(angle));
        to[half + i] = static_cast<T>(std::sin(angle));
      }
    }
  });
}

template <typename T>
void rotary(int threads, View<T> x, View<const T> table, bool inverse) {
  const std::int64_t half = table.columns / 2;
  const T sign = inverse ? T(-1) : T(1);
  parallel_rows(threads, x.rows, x.columns, [&](Range rows) {
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
      const T* cosines = table.row(t);
      const T* sines = cosines + half;
      for (std::int64_t head = 0; head < x.columns; head += table.columns) {
        T* first = x.row(t) + head;
        T* second = first + half;
        for_each_vector<T>(half, [&](std::int64_t i, auto lanes) {
          const Vector<T> cosine = load(cosines + i, lanes);
          const Vector<T> sine = sign * load(sines + i, lanes);
          const Vector<T> a = load(first + i, lanes);
          const Vector<T> b = load(second + i, lanes);
          store(first + i, a * cosine - b * sine, lanes);
          store(second + i, b * cosine + a * sine, lanes);
        });
      }
    }
  });
}

#define HYDRAULIS_INSTANTIATE(T)                                                             \
  template void rotary_table<T>(int, std::span<const std::int32_t>, std::span<const double>, \
                                View<T>);                                                    \
  template void rotary<T>(int, View<T>, View<const T>, bool);
HYDRAULIS_INSTANTIATE(float)
HYDRAULIS_INSTANTIATE(double)
#undef HYDRAULIS_INSTANTIATE

}  // namespace hydraulis::cpu
