#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace hydraulis::cuda {

namespace {

constexpr int kThreads = 256;

/// A warp for each head of each row.
template <typename T, typename D>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(View<const T> out, View<const D> dout, std::int64_t rows, int heads, int head_dim,
                 View<float> delta) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t step = std::int64_t{gridDim.x} * (kThreads / 32);
  for (std::int64_t i = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
       i < rows * heads; i += step) {
    const std::int64_t row = i / heads;
    const std::int64_t head = i % heads;
    const T* a = out.row(row) + head * head_dim;
    const D* b = dout.row(row) + head * head_dim;
    float sum = 0;
    for (int j = lane; j < head_dim; j += 32) sum += to_float(a[j]) * to_float(b[j]);
    sum = reduce_warp<Sum>(sum);
    if (lane == 0) delta.row(row)[head] = sum;
  }
}

}  // namespace

void attention_delta(const AttentionShape& shape, ConstMatrix out, ConstMatrix dout, Matrix delta,
                     cudaStream_t stream) {
  if (out.rows == 0) return;
  const std::int64_t warps = out.rows * shape.heads;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>((warps + 7) / 8, 1 << 20));
  with_type(out.type, [&]<typename T>() {
    with_type(dout.type, [&]<typename D>() {
      launch<delta_kernel<T, D>>(blocks, kThreads, 0, stream, view<T>(out), view<D>(dout), out.rows,
                                 shape.heads, shape.head_dim, view<float>(delta));
    });
  });
}

}  // namespace hydraulis::cuda
