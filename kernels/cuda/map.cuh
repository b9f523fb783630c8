#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.cuh"

// Kernels that do the same with every pack of neighbours.
namespace hydraulis::cuda {

/// operation.at<kCount>(row, column) for every pack of kCount columns; threads stride over both, so
/// no shape is too large for a launch.
template <typename Operation, int kCount>
__global__ void __launch_bounds__(256)
    map_kernel(Operation operation, std::int64_t rows, std::int64_t columns) {
  const std::int64_t row_step = std::int64_t{gridDim.y} * blockDim.y;
  const std::int64_t column_step = std::int64_t{gridDim.x} * blockDim.x * kCount;
  const std::int64_t first = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += row_step) {
    for (std::int64_t column = first; column < columns; column += column_step) {
      operation.template at<kCount>(row, column);
    }
  }
}

template <int kCount, typename Operation>
void map(const Operation& operation, std::int64_t rows, std::int64_t columns, cudaStream_t stream) {
  if (rows == 0 || columns == 0) return;
  const std::int64_t packs = columns / kCount;
  std::int64_t width = 1;  // threads along a row, the rest along columns
  while (width < packs && width < 256) width *= 2;
  const std::int64_t height = 256 / width;
  const auto blocks = [](std::int64_t work, std::int64_t threads, std::int64_t most) {
    return static_cast<unsigned>(std::min((work + threads - 1) / threads, most));
  };
  const dim3 grid(blocks(packs, width, 65536), blocks(rows, height, 32768));
  launch<map_kernel<Operation, kCount>>(
      grid, dim3(static_cast<unsigned>(width), static_cast<unsigned>(height)), 0, stream, operation,
      rows, columns);
}

}  // namespace hydraulis::cuda
