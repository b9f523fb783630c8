#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/compute.h"
#include "kernels/matrix.h"

// The optimizer's kernels, each one launch for all tensors, on f32 matrices of one row.
namespace hydraulis::cuda {

/// Stretches cut into what a block works on, in their order.
struct OptimizerPieces {
  struct Piece {
    std::int64_t begin = 0;
    std::int32_t count = 0;
    std::int32_t stretch = 0;
  };
  std::vector<Piece> pieces;
  std::vector<std::int64_t> ends;  ///< stretch i has pieces ends[i - 1]… (0…) up to ends[i]
};
OptimizerPieces optimizer_pieces(std::span<const OptimizerStretch> stretches);

/// The same in device memory, with a factor of each stretch where the kernel takes one.
struct PieceList {
  const OptimizerPieces::Piece* pieces = nullptr;
  std::int64_t count = 0;
  const std::int64_t* ends = nullptr;
  std::int64_t stretches = 0;
  const float* factors = nullptr;
};

/// Factors: learning_rate·weight_decay.
void adamw(const OptimizerStep& settings, const PieceList& pieces, ConstMatrix gradient,
           Matrix parameter, Matrix first_moment, Matrix second_moment, cudaStream_t stream);
/// Factors: weight_decay.
void lamb_direction(const OptimizerStep& settings, const PieceList& pieces, ConstMatrix gradient,
                    ConstMatrix parameter, Matrix first_moment, Matrix second_moment, Matrix update,
                    cudaStream_t stream);
/// A sum of each piece, and of each stretch.
void sum_squares(const PieceList& pieces, ConstMatrix x, double* of_pieces, double* of_stretches,
                 cudaStream_t stream);
/// Factors: scales.
void add_scaled(const PieceList& pieces, ConstMatrix x, Matrix y, cudaStream_t stream);

}  // namespace hydraulis::cuda
