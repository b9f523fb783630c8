#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "kernels/compute.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/matrix.h"

// Attention on tensor cores, in the manner of FlashAttention-2 (Dao, 2023): q, k, v and dout are
// bf16 with rows that start at multiples of 16 bytes, heads have 32, 64, 80, 96 or 128 numbers;
// what is written is bf16 or f32, lse and delta f32. Tiles are in device memory.
namespace hydraulis::cuda {

/// call.operator()<kDim>() for heads of so many numbers, one of kHeadSizes.
template <typename Call>
void with_head_dim(int head_dim, Call call) {
  switch (head_dim) {
    case 32:
      return call.template operator()<32>();
    case 64:
      return call.template operator()<64>();
    case 80:
      return call.template operator()<80>();
    case 96:
      return call.template operator()<96>();
    case 128:
      return call.template operator()<128>();
    default:
      throw std::logic_error("attention on tensor cores has no heads of " +
                             std::to_string(head_dim) + " numbers");
  }
}

struct TileList {
  const AttentionTile* tiles = nullptr;
  std::int64_t count = 0;
};

// attention.cu
/// Queries of a block.
std::int64_t attention_tile_rows();
/// Bytes of shared memory that a launch asks for.
std::size_t attention_shared_bytes(int head_dim);
void attention(const AttentionShape& shape, const TileList& queries, ConstMatrix q, ConstMatrix k,
               ConstMatrix v, bool accumulate, Matrix out, Matrix lse, cudaStream_t stream);

/// The operands of the backward: queries, keys, values, and the gradient of the result with what
/// is known of the rows' softmax.
struct AttentionGradient {
  ConstMatrix q, k, v, dout, lse, delta;
};
/// Queries, and keys, of a block.
std::int64_t attention_backward_tile_rows();
std::size_t attention_dq_shared_bytes(int head_dim);
std::size_t attention_dkv_shared_bytes(int head_dim);

// attention_delta.cu
void attention_delta(const AttentionShape& shape, ConstMatrix out, ConstMatrix dout, Matrix delta,
                     cudaStream_t stream);
// attention_dq.cu, attention_dkv.cu: two kernels that each write what they own, so that no sum
// depends on who comes first. Scores are computed in both.
void attention_dq(const AttentionShape& shape, const TileList& queries,
                  const AttentionGradient& given, Matrix dq, cudaStream_t stream);
void attention_dkv(const AttentionShape& shape, const TileList& keys,
                   const AttentionGradient& given, Matrix dk, Matrix dv, cudaStream_t stream);

}  // namespace hydraulis::cuda
