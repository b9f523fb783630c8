#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/matrix.h"

namespace hydraulis::cuda {

/// Blocks of four warps that go through so many rounds of products in registers.
struct MmaWork {
  int blocks = 0;
  int rounds = 0;
};

inline constexpr std::int64_t kMmaOperands = 4096;  ///< bf16 numbers that warps begin with

/// Nothing but mma.sync, its operands and sums in registers: what kernels that use this instruction
/// can reach at most. `out` is written only so that nothing is left out.
void mma_in_registers(const MmaWork& work, ConstMatrix operands, Matrix out, cudaStream_t stream);
double mma_flops(const MmaWork& work);

}  // namespace hydraulis::cuda
