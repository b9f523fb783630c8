#include <cmath>
#include <cstdint>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace hydraulis::cpu {
namespace {

/// Σ f(vector) over a row with independent sums, so that additions overlap.
template <typename T, typename F>
T row_sum(std::int64_t n, F f) {
  constexpr std::int64_t lanes = kLanes<T>;
  Vector<T> sums[4] = {};
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    for (int u = 0; u < 4; ++u) sums[u] += f(i + u * lanes, AllLanes{});
  }
  for (; i + lanes <= n; i += lanes) sums[0] += f(i, AllLanes{});
  if (i < n) sums[1] += f(i, FirstLanes{static_cast<int>(n - i)});
  return sum_of_lanes<T>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/// Rows whose share of the weight's gradient is summed in the matrices' type before it is added in
/// double precision.
constexpr std::int64_t kBlockRows = 16;

}  // namespace

template <typename T>
void rms_norm(int threads, View<const T> x, View<const T> weight, T epsilon, View<T> y,
              View<T> inverse_rms) {
  parallel_rows(threads, x.rows, x.columns, [&](Range rows) {
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      const T* from = x.row(i);
      T* to = y.row(i);
      const T squares = row_sum<T>(x.columns, [&](std::int64_t j, auto lanes) {
        const Vector<T> value = load(from + j, lanes);
        return value * value;
      });
      const T inverse = T(1) / std::sqrt(squares / static_cast<T>(x.columns) + epsilon);
      inverse_rms.row(i)[0] = inverse;
      for_each_vector<T>(x.columns, [&](std::int64_t j, auto lanes) {
        store(to + j, load(from + j, lanes) * inverse * load(weight.data + j, lanes), lanes);
      });
    }
  });
}

template <typename T>
void rms_norm_backward(Device& device, View<const T> dy, View<const T> x, View<const T> weight,
                       View<const T> inverse_rms, bool accumulate, View<T> dx, View<T> dweight) {
  const std::int64_t h = x.columns;
  if (x.rows == 0) return;
  const int threads = threads_for(x.elements(), device.threads());
  const std::int64_t parts = std::min<std::int64_t>(threads, x.rows);
  const DeviceBuffer double_sums(device, parts * h * static_cast<std::int64_t>(sizeof(double)));
  const DeviceBuffer block_sums(device, parts * h * static_cast<std::int64_t>(sizeof(T)));

  parallel(threads, parts, [&](std::int64_t part, int) {
    double* total = static_cast<double*>(double_sums.data()) + part * h;
    T* block = static_cast<T*>(block_sums.data()) + part * h;
    std::fill(total, total + h, 0.0);
    const Range rows = part_of(x.rows, parts, part);
    for (std::int64_t begin = rows.begin; begin < rows.end; begin += kBlockRows) {
      std::fill(block, block + h, T(0));
      const std::int64_t end = std::min(rows.end, begin + kBlockRows);
      for (std::int64_t i = begin; i < end; ++i) {
        const T* gradient = dy.row(i);
        const T* from = x.row(i);
        T* to = dx.row(i);
        const T inverse = inverse_rms.row(i)[0];
        const T product = row_sum<T>(h, [&](std::int64_t j, auto lanes) {
          return load(gradient + j, lanes) * load(weight.data + j, lanes) * load(from + j, lanes);
        });
        const T along = product * inverse * inverse / static_cast<T>(h);
        for_each_vector<T>(h, [&](std::int64_t j, auto lanes) {
          const Vector<T> g = load(gradient + j, lanes);
          const Vector<T> value = load(from + j, lanes);
          store(block + j, load(block + j, lanes) + g * value * inverse, lanes);
          const Vector<T> result = (g * load(weight.data + j, lanes) - value * along) * inverse;
          store(to + j, accumulate ? load(to + j, lanes) + result : result, lanes);
        });
      }
      for (std::int64_t j = 0; j < h; ++j) total[j] += static_cast<double>(block[j]);
    }
  });
  for (std::int64_t j = 0; j < h; ++j) {
    double sum = 0;
    for (std::int64_t part = 0; part < parts; ++part) {
      sum += static_cast<double*>(double_sums.data())[part * h + j];
    }
    dweight.data[j] += static_cast<T>(sum);
  }
}

#define HYDRAULIS_INSTANTIATE(T)                                                           \
  template void rms_norm<T>(int, View<const T>, View<const T>, T, View<T>, View<T>);       \
  template void rms_norm_backward<T>(Device&, View<const T>, View<const T>, View<const T>, \
                                     View<const T>, bool, View<T>, View<T>);
HYDRAULIS_INSTANTIATE(float)
HYDRAULIS_INSTANTIATE(double)
#undef HYDRAULIS_INSTANTIATE

}  // namespace hydraulis::cpu
