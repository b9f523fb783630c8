#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace hydraulis::cuda {

namespace {

template <typename T>
struct Add {
  View<const T> a, b;
  View<T> out;
  template <int kCount>
  __device__ void at(std::int64_t row, std::int64_t column) const {
    Floats<kCount> x = load<kCount>(a.row(row) + column);
    const Floats<kCount> y = load<kCount>(b.row(row) + column);
#pragma unroll
    for (int i = 0; i < kCount; ++i) x.value[i] += y.value[i];
    store(out.row(row) + column, x);
  }
};

template <typename T>
struct Scale {
  float factor;
  View<T> y;
  template <int kCount>
  __device__ void at(std::int64_t row, std::int64_t column) const {
    Floats<kCount> values = {};
    if (factor != 0.0F) {
      values = load<kCount>(y.row(row) + column);
#pragma unroll
      for (int i = 0; i < kCount; ++i) values.value[i] *= factor;
    }
    store(y.row(row) + column, values);
  }
};

template <typename From, typename To>
struct Convert {
  View<const From> from;
  View<To> to;
  template <int kCount>
  __device__ void at(std::int64_t row, std::int64_t column) const {
    store(to.row(row) + column, load<kCount>(from.row(row) + column));
  }
};

constexpr int kSumThreads = 256;
constexpr std::int64_t kMostSums = 1024;

/// Every thread sums its share of the columns of every row of its block.
template <typename T, int kCount>
__global__ void __launch_bounds__(kSumThreads)
    squares_kernel(View<const T> x, std::int64_t rows, std::int64_t columns, double* sums) {
  double sum = 0;
  const std::int64_t step = std::int64_t{gridDim.x} * kSumThreads * kCount;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    for (std::int64_t column = (std::int64_t{blockIdx.x} * kSumThreads + threadIdx.x) * kCount;
         column < columns; column += step) {
      const Floats<kCount> values = load<kCount>(x.row(row) + column);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        sum += static_cast<double>(values.value[i]) * static_cast<double>(values.value[i]);
      }
    }
  }
  sum = reduce<kSumThreads, Sum>(sum);
  if (threadIdx.x == 0) sums[std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kSumThreads) sum_kernel(double* sums, int count) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kSumThreads) sum += sums[i];
  sum = reduce<kSumThreads, Sum>(sum);
  if (threadIdx.x == 0) sums[count] = sum;
}

}  // namespace

void add(ConstMatrix a, ConstMatrix b, Matrix out, cudaStream_t stream) {
  with_type(out.type, [&]<typename T>() {
    with_packs(packs(8, out.columns, {a, b, out}), [&]<int kCount>() {
      map<kCount>(Add<T>{view<T>(a), view<T>(b), view<T>(out)}, out.rows, out.columns, stream);
    });
  });
}

void scale(double factor, Matrix y, cudaStream_t stream) {
  with_type(y.type, [&]<typename T>() {
    with_packs(packs(8, y.columns, {y}), [&]<int kCount>() {
      map<kCount>(Scale<T>{static_cast<float>(factor), view<T>(y)}, y.rows, y.columns, stream);
    });
  });
}

void convert(ConstMatrix from, Matrix to, cudaStream_t stream) {
  with_type(from.type, [&]<typename From>() {
    with_type(to.type, [&]<typename To>() {
      with_packs(packs(8, to.columns, {from, to}), [&]<int kCount>() {
        map<kCount>(Convert<From, To>{view<From>(from), view<To>(to)}, to.rows, to.columns, stream);
      });
    });
  });
}

std::int64_t sum_squares_workspace_bytes() {
  return (kMostSums + 1) * static_cast<std::int64_t>(sizeof(double));
}

const double* sum_squares(ConstMatrix x, void* workspace, cudaStream_t stream) {
  // Whole matrices without gaps are one row: fewer, fuller blocks.
  if (x.stride == x.columns) x = {x.data, x.type, 1, x.elements(), x.elements()};
  auto* sums = static_cast<double*>(workspace);
  std::int64_t blocks = 0;
  with_type(x.type, [&]<typename T>() {
    with_packs(packs(8, x.columns, {x}), [&]<int kCount>() {
      const std::int64_t share = kSumThreads * kCount * 4;
      const std::int64_t wide =
          std::clamp<std::int64_t>((x.columns + share - 1) / share, 1, kMostSums);
      const std::int64_t high = std::clamp<std::int64_t>(x.rows, 1, kMostSums / wide);
      blocks = wide * high;
      launch<squares_kernel<T, kCount>>(
          dim3(static_cast<unsigned>(wide), static_cast<unsigned>(high)), kSumThreads, 0, stream,
          view<T>(x), x.rows, x.columns, sums);
    });
  });
  launch<sum_kernel>(1, kSumThreads, 0, stream, sums, static_cast<int>(blocks));
  return sums + blocks;
}

}  // namespace hydraulis::cuda
