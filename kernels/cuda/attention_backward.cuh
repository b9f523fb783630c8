#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_fragments.cuh"
#include "kernels/cuda/numbers.cuh"

// What both kernels of the backward share.
namespace hydraulis::cuda {

inline constexpr int kBackwardThreads = 128;
inline constexpr int kBackwardRows = 64;  // that a block owns: 16 for each warp
inline constexpr float kLog2E = 1.4426950408889634F;

struct BackwardArguments {
  const AttentionTile* tiles;
  View<const bf16> q, k, v, dout;
  View<const float> lse, delta;
  int heads;
  int group;  // query heads of a key head
  float scale;
};

inline BackwardArguments backward_arguments(const AttentionShape& shape, const TileList& tiles,
                                            const AttentionGradient& given) {
  return {tiles.tiles,
          view<bf16>(given.q),
          view<bf16>(given.k),
          view<bf16>(given.v),
          view<bf16>(given.dout),
          view<float>(given.lse),
          view<float>(given.delta),
          shape.heads,
          shape.heads / shape.kv_heads,
          static_cast<float>(shape.scale)};
}

/// A gradient that is added to.
struct Target {
  void* data;
  std::int64_t stride;
  bool is_bf16;
};
inline Target target(const Matrix& m) { return {m.data, m.stride, m.type == DataType::bf16}; }

/// Adds factor·d, a warp's 16 rows from row `first`, to columns from `column`, as far as there are
/// rows.
template <int kDim>
__device__ inline void add_rows(const Target& to, std::int64_t first, int rows, std::int64_t column,
                                const float (&d)[1][kDim / 8][4], float factor) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane / 4 + 8 * half;
    if (row >= rows) continue;
    const std::int64_t offset = (first + row) * to.stride + column + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      float2 value = load_pair(to.data, to.is_bf16, offset + 8 * n);
      value.x += factor * d[0][n][2 * half];
      value.y += factor * d[0][n][2 * half + 1];
      store_pair(to.data, to.is_bf16, offset + 8 * n, value);
    }
  }
}

}  // namespace hydraulis::cuda
