#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

// A block a row, over rows that may be longer than any cache; blocks stride over rows.
namespace hydraulis::cuda {

namespace {

constexpr int kThreads = 256;

/// body(column, values) for the thread's packs of the first `columns` columns, the last of which
/// may be cut short by the vocabulary's end.
template <int kCount, typename T, typename Body>
__device__ void for_each_pack(const T* row, std::int64_t columns, Body body) {
  const std::int64_t whole = columns / kCount * kCount;
  for (std::int64_t j = std::int64_t{threadIdx.x} * kCount; j < whole; j += kThreads * kCount) {
    body(j, load<kCount>(row + j));
  }
  for (std::int64_t j = whole + threadIdx.x; j < columns; j += kThreads) {
    body(j, load<1>(row + j));
  }
}

/// What is subtracted from logits: a whole row of −∞, or no columns, have no greatest.
__device__ float shift_of(float most) { return most == -INFINITY ? 0.0F : most; }

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    max_kernel(View<const T> logits, std::int64_t rows, std::int64_t vocabulary,
               View<float> row_max) {
  for (std::int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
    float most = -INFINITY;
    for_each_pack<kCount>(logits.row(t), vocabulary, [&](std::int64_t, const auto& values) {
      for (const float value : values.value) most = fmaxf(most, value);
    });
    most = reduce<kThreads, Max>(most);
    if (threadIdx.x == 0) *row_max.row(t) = most;
  }
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    sums_kernel(View<const T> logits, std::int64_t rows, std::int64_t vocabulary,
                std::int64_t first_column, const std::int32_t* targets, View<const float> row_max,
                View<float> sums) {
  for (std::int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
    const T* row = logits.row(t);
    const float shift = shift_of(*row_max.row(t));
    float sum = 0;
    for_each_pack<kCount>(row, vocabulary, [&](std::int64_t, const auto& values) {
      for (const float value : values.value) sum += expf(value - shift);
    });
    sum = reduce<kThreads, Sum>(sum);
    if (threadIdx.x != 0) continue;
    const std::int64_t target = targets[t];
    const std::int64_t column = target - first_column;
    const bool here = target >= 0 && column >= 0 && column < vocabulary;
    sums.row(t)[0] = sum;
    sums.row(t)[1] = here ? to_float(row[column]) - shift : 0.0F;
  }
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(View<T> logits, std::int64_t rows, std::int64_t columns,
                    std::int64_t vocabulary, std::int64_t first_column, const std::int32_t* targets,
                    View<const float> row_max, View<const float> sums) {
  for (std::int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
    T* row = logits.row(t);
    const std::int64_t target = targets[t];
    const std::int64_t column = target - first_column;
    const bool counted = target >= 0;
    const float shift = counted ? shift_of(*row_max.row(t)) : 0.0F;
    const float sum = counted ? sums.row(t)[0] : 0.0F;
    const float factor = sum == 0.0F ? 0.0F : 1.0F / sum;
    for_each_pack<kCount>(row, vocabulary, [&](std::int64_t j, auto values) {
      constexpr int kHere = sizeof(values) / sizeof(float);
#pragma unroll
      for (int i = 0; i < kHere; ++i) {
        const float share = expf(values.value[i] - shift) * factor;
        values.value[i] = counted ? share - (j + i == column ? 1.0F : 0.0F) : 0.0F;
      }
      store(row + j, values);
    });
    for (std::int64_t j = vocabulary + threadIdx.x; j < columns; j += kThreads) {
      from_float(0.0F, row[j]);
    }
  }
}

/// Packs start every row at its first column; how many columns there are does not matter.
bool packed(const ConstMatrix& logits) { return packs(8, 0, {logits}); }

dim3 grid_of(std::int64_t rows) {
  return {static_cast<unsigned>(std::min<std::int64_t>(rows, 1 << 20))};
}

}  // namespace

void cross_entropy_max(ConstMatrix logits, std::int64_t vocabulary, Matrix row_max,
                       cudaStream_t stream) {
  if (logits.rows == 0) return;
  with_type(logits.type, [&]<typename T>() {
    with_packs(packed(logits), [&]<int kCount>() {
      launch<max_kernel<T, kCount>>(grid_of(logits.rows), kThreads, 0, stream, view<T>(logits),
                                    logits.rows, vocabulary, view<float>(row_max));
    });
  });
}

void cross_entropy_sums(ConstMatrix logits, std::int64_t vocabulary, std::int64_t first_column,
                        const std::int32_t* targets, ConstMatrix row_max, Matrix sums,
                        cudaStream_t stream) {
  if (logits.rows == 0) return;
  with_type(logits.type, [&]<typename T>() {
    with_packs(packed(logits), [&]<int kCount>() {
      launch<sums_kernel<T, kCount>>(grid_of(logits.rows), kThreads, 0, stream, view<T>(logits),
                                     logits.rows, vocabulary, first_column, targets,
                                     view<float>(row_max), view<float>(sums));
    });
  });
}

void cross_entropy_backward(Matrix logits, std::int64_t vocabulary, std::int64_t first_column,
                            const std::int32_t* targets, ConstMatrix row_max, ConstMatrix sums,
                            cudaStream_t stream) {
  if (logits.rows == 0) return;
  with_type(logits.type, [&]<typename T>() {
    with_packs(packed(logits), [&]<int kCount>() {
      launch<gradient_kernel<T, kCount>>(grid_of(logits.rows), kThreads, 0, stream, view<T>(logits),
                                         logits.rows, logits.columns, vocabulary, first_column,
                                         targets, view<float>(row_max), view<float>(sums));
    });
  });
}

}  // namespace hydraulis::cuda
