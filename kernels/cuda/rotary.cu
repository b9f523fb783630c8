#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/numbers.cuh"

namespace hydraulis::cuda {

namespace {

struct RotaryTable {
  const std::int32_t* positions;
  const double* inverse_frequencies;
  std::int64_t half;
  View<float> table;
  template <int kCount>
  __device__ void at(std::int64_t row, std::int64_t column) const {
    static_assert(kCount == 1);
    const double angle = static_cast<double>(positions[row]) * inverse_frequencies[column];
    table.row(row)[column] = static_cast<float>(::cos(angle));
    table.row(row)[half + column] = static_cast<float>(::sin(angle));
  }
};

/// Every column of the first halves of heads, which lie side by side here.
template <typename T>
struct Rotary {
  View<T> x;
  View<const float> table;
  std::int64_t half;
  std::int64_t heads;
  float sign;
  template <int kCount>
  __device__ void at(std::int64_t row, std::int64_t column) const {
    const float* angles = table.row(row) + column;
    const Floats<kCount> cosine = load<kCount>(angles);
    const Floats<kCount> sine = load<kCount>(angles + half);
    // A thread turns its columns of all heads by the same angles.
    for (std::int64_t head = 0; head < heads; ++head) {
      T* first = x.row(row) + head * 2 * half + column;
      Floats<kCount> a = load<kCount>(first);
      Floats<kCount> b = load<kCount>(first + half);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float s = sign * sine.value[i];
        const float turned = a.value[i] * cosine.value[i] - b.value[i] * s;
        b.value[i] = b.value[i] * cosine.value[i] + a.value[i] * s;
        a.value[i] = turned;
      }
      store(first, a);
      store(first + half, b);
    }
  }
};

}  // namespace

void rotary_table(const std::int32_t* positions, const double* inverse_frequencies, Matrix table,
                  cudaStream_t stream) {
  const std::int64_t half = table.columns / 2;
  map<1>(RotaryTable{positions, inverse_frequencies, half, view<float>(table)}, table.rows, half,
         stream);
}

void rotary(Matrix x, int heads, ConstMatrix table, bool inverse, cudaStream_t stream) {
  const std::int64_t half = table.columns / 2;
  with_type(x.type, [&]<typename T>() {
    with_packs(packs(8, half, {x, table}), [&]<int kCount>() {
      map<kCount>(Rotary<T>{view<T>(x), view<float>(table), half, heads, inverse ? -1.0F : 1.0F},
                  x.rows, half, stream);
    });
  });
}

}  // namespace hydraulis::cuda
