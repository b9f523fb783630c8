#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention_backward.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/shared.cuh"

namespace hydraulis::cuda {

namespace {

constexpr int kThreads = kBackwardThreads;
constexpr int kRows = kBackwardRows;  // and keys in shared memory at a time
template <int kDim>
constexpr std::size_t kSharedBytes = 4 * kRows* kRowBytes<kDim>;

/// Scores and their gradients of a warp's 16 queries against a tile of keys become the gradient of
/// the unscaled scores. Rows of queries that are not there mix with no others and are not written.
__device__ void gradient_of_scores(float (&s)[1][kRows / 8][4], const float (&dp)[1][kRows / 8][4],
                                   const AttentionTile& tile, int row, int first_key,
                                   const float (&lse)[2], const float (&delta)[2], float factor) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int query = tile.first + row + lane / 4 + i / 2 * 8;
    const bool before_end = tile.causal != 0 && query < tile.other_count;
    const int limit = (before_end ? query + 1 : tile.other_count) - first_key;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const bool seen = 8 * n + lane % 4 * 2 + i % 2 < limit;
      const float p = exp2f(s[0][n][i] * factor - lse[i / 2]);
      s[0][n][i] = seen ? p * (dp[0][n][i] - delta[i / 2]) : 0.0F;
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads) dq_kernel(BackwardArguments x, Target dq) {
  HYDRAULIS_DYNAMIC_SHARED(memory);
  const SharedAddress queries = shared_address(memory);
  const SharedAddress douts = queries + rows_bytes<kDim>(kRows);
  const SharedAddress keys = douts + rows_bytes<kDim>(kRows);
  const SharedAddress values = keys + rows_bytes<kDim>(kRows);
  const AttentionTile tile = x.tiles[blockIdx.x / static_cast<unsigned>(x.heads)];
  const int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(x.heads));
  const std::int64_t column = std::int64_t{head} * kDim;
  const std::int64_t kv_column = std::int64_t{head / x.group} * kDim;
  const bf16* k = x.k.row(tile.other_row) + kv_column;
  const bf16* v = x.v.row(tile.other_row) + kv_column;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16;

  start_tile<kDim, kRows, kThreads>(queries, x.q.row(tile.row) + column, x.q.stride, tile.count);
  start_tile<kDim, kRows, kThreads>(douts, x.dout.row(tile.row) + column, x.dout.stride,
                                    tile.count);
  start_tile<kDim, kRows, kThreads>(keys, k, x.k.stride, tile.other_count);
  start_tile<kDim, kRows, kThreads>(values, v, x.v.stride, tile.other_count);
  commit_copies();

  float lse[2] = {};
  float delta[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = row + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
    if (own >= tile.count) continue;
    lse[half] = x.lse.row(tile.row + own)[head] * kLog2E;
    delta[half] = x.delta.row(tile.row + own)[head];
  }

  float d[1][kDim / 8][4] = {};
  for (int first = 0; first < tile.other_count; first += kRows) {
    wait_for_copies<0>();
    __syncthreads();
    float s[1][kRows / 8][4] = {};
    float dp[1][kRows / 8][4] = {};
    multiply_transposed<kDim, 1, kRows>(s, queries, row, keys);
    multiply_transposed<kDim, 1, kRows>(dp, douts, row, values);
    __syncthreads();  // nobody needs these values any more
    k += kRows * x.k.stride;
    v += kRows * x.v.stride;
    const int left = tile.other_count - first - kRows;
    if (left > 0) {
      start_tile<kDim, kRows, kThreads>(values, v, x.v.stride, left);
      commit_copies();
    }
    gradient_of_scores(s, dp, tile, row, first, lse, delta, x.scale * kLog2E);
    multiply<kDim, 1, kRows>(d, s, keys);
    __syncthreads();  // nor these keys
    if (left > 0) {
      start_tile<kDim, kRows, kThreads>(keys, k, x.k.stride, left);
      commit_copies();
    }
  }
  add_rows<kDim>(dq, tile.row + row, tile.count - row, column, d, x.scale);
}

template <int kDim>
void launch_dq(const BackwardArguments& x, const Target& dq, std::int64_t blocks,
               cudaStream_t stream) {
  allow_shared_bytes<dq_kernel<kDim>>(kSharedBytes<kDim>);
  launch<dq_kernel<kDim>>(static_cast<unsigned>(blocks), kThreads, kSharedBytes<kDim>, stream, x,
                          dq);
}

}  // namespace

std::int64_t attention_backward_tile_rows() { return kRows; }
std::size_t attention_dq_shared_bytes(int head_dim) {
  std::size_t bytes = 0;
  with_head_dim(head_dim, [&]<int kDim>() { bytes = kSharedBytes<kDim>; });
  return bytes;
}

void attention_dq(const AttentionShape& shape, const TileList& queries,
                  const AttentionGradient& given, Matrix dq, cudaStream_t stream) {
  if (queries.count == 0) return;
  const BackwardArguments x = backward_arguments(shape, queries, given);
  const std::int64_t blocks = queries.count * shape.heads;
  with_head_dim(shape.head_dim,
                [&]<int kDim>() { launch_dq<kDim>(x, target(dq), blocks, stream); });
}

}  // namespace hydraulis::cuda
