#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/shared.cuh"

// Sums and maxima over the threads that share a row, in an order that only their number decides.
namespace hydraulis::cuda {

struct Sum {
  __device__ static float of(float a, float b) { return a + b; }
  __device__ static double of(double a, double b) { return a + b; }
};
/// Leaves out what is not a number.
struct Max {
  __device__ static float of(float a, float b) { return fmaxf(a, b); }
};

template <typename Operation, typename T>
__device__ T reduce_warp(T value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value = Operation::of(value, __shfl_xor_sync(0xFFFFFFFFU, value, lanes));
  }
  return value;
}

/// Over kThreads neighbouring threads, which all get the result: a warp, or the whole block, which
/// must call it together.
template <int kThreads, typename Operation, typename T>
__device__ T reduce(T value) {
  static_assert(kThreads % 32 == 0);
  value = reduce_warp<Operation>(value);
  if constexpr (kThreads > 32) {
    HYDRAULIS_SHARED(T, of_warps, kThreads / 32);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warps[0];
    for (int warp = 1; warp < kThreads / 32; ++warp) value = Operation::of(value, of_warps[warp]);
    __syncthreads();  // before the next call writes
  }
  return value;
}

}  // namespace hydraulis::cuda
