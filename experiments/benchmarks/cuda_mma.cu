#include "experiments/benchmarks/cuda_mma.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace hydraulis::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kSums = 16;  // independent products under way

__global__ void __launch_bounds__(kThreads)
    mma_kernel(const std::uint32_t* operands, int rounds, float* out) {
  constexpr int kWords = static_cast<int>(kMmaOperands) / 2;
  const int first = static_cast<int>(threadIdx.x) * 6;
  std::uint32_t a[2][4];
  std::uint32_t b[2][2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) a[i][j] = operands[(first + 4 * i + j) % kWords];
#pragma unroll
    for (int j = 0; j < 2; ++j) b[i][j] = operands[(first + 17 + 2 * i + j) % kWords];
  }
  float sums[kSums][4] = {};
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) mma_16x8x16(sums[i], a[i % 2], b[i / 2 % 2]);
  }
  float total = 0;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) total += sums[i][j];
  }
  if (total == 1e30F) *out = total;  // never, but the compiler does not know
}

}  // namespace

void mma_in_registers(const MmaWork& work, ConstMatrix operands, Matrix out, cudaStream_t stream) {
  launch<mma_kernel>(static_cast<unsigned>(work.blocks), kThreads, 0, stream,
                     operands.as<std::uint32_t>(), work.rounds, out.as<float>());
}

double mma_flops(const MmaWork& work) {
  const double warps = static_cast<double>(work.blocks) * (kThreads / 32);
  return warps * work.rounds * kSums * 2.0 * 16 * 8 * 16;
}

}  // namespace hydraulis::cuda
