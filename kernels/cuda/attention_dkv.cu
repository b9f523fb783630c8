#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention_backward.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/shared.cuh"

namespace hydraulis::cuda {

namespace {

constexpr int kThreads = kBackwardThreads;
constexpr int kRows = kBackwardRows;
/// Queries that are in shared memory at a time: as many as leave no register to be spilled.
template <int kDim>
constexpr int kQueries = kDim <= 64 ? 64 : 32;

template <int kDim>
constexpr std::size_t kSharedBytes = 2 * (kRows + kQueries<kDim>)*kRowBytes<kDim> +
                                     2 * kQueries<kDim> * sizeof(float);

/// The queries that a block goes through: tile after tile of every head that shares its keys.
template <int kTile>
struct Step {
  int head;
  int first;  // query of the stretch

  __device__ bool next(int last_head, int queries) {
    first += kTile;
    if (first < queries) return true;
    first = 0;
    return ++head < last_head;
  }
};

/// Transposed scores of a warp's 16 keys against a tile of queries become probabilities. Rows of
/// keys that are not there mix with no others and are not written.
template <int kTile>
__device__ void probabilities(float (&s)[1][kTile / 8][4], const AttentionTile& tile, int row,
                              int first_query, const float* lse, float factor) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int own = row + lane / 4 + i / 2 * 8;
      const int column = 8 * n + lane % 4 * 2 + i % 2;
      const int query = first_query + column;
      const bool seen = query < tile.other_count && (tile.causal == 0 || query >= own);
      s[0][n][i] = seen ? exp2f(s[0][n][i] * factor - lse[column]) : 0.0F;
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads) dkv_kernel(BackwardArguments x, Target dk, Target dv) {
  constexpr int kTile = kQueries<kDim>;
  HYDRAULIS_DYNAMIC_SHARED(memory);
  const SharedAddress keys = shared_address(memory);
  const SharedAddress values = keys + rows_bytes<kDim>(kRows);
  const SharedAddress queries = values + rows_bytes<kDim>(kRows);
  const SharedAddress douts = queries + rows_bytes<kDim>(kTile);
  float* const lse = reinterpret_cast<float*>(memory + 2 * (kRows + kTile) * kRowBytes<kDim>);
  float* const delta = lse + kTile;
  const int kv_heads = x.heads / x.group;
  const AttentionTile tile = x.tiles[blockIdx.x / static_cast<unsigned>(kv_heads)];
  const int kv_head = static_cast<int>(blockIdx.x % static_cast<unsigned>(kv_heads));
  const std::int64_t column = std::int64_t{kv_head} * kDim;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int last_head = (kv_head + 1) * x.group;

  const auto start_queries = [&](const Step<kTile>& step) {
    const std::int64_t first = tile.other_row + step.first;
    const int left = tile.other_count - step.first;
    start_tile<kDim, kTile, kThreads>(queries, x.q.row(first) + std::int64_t{step.head} * kDim,
                                      x.q.stride, left);
    const int own = static_cast<int>(threadIdx.x);
    if (own < kTile) {
      const bool there = own < left;
      lse[own] = there ? x.lse.row(first + own)[step.head] * kLog2E : 0.0F;
      delta[own] = there ? x.delta.row(first + own)[step.head] : 0.0F;
    }
  };
  const auto start_douts = [&](const Step<kTile>& step) {
    start_tile<kDim, kTile, kThreads>(
        douts, x.dout.row(tile.other_row + step.first) + std::int64_t{step.head} * kDim,
        x.dout.stride, tile.other_count - step.first);
  };

  Step<kTile> step{kv_head * x.group, 0};
  start_tile<kDim, kRows, kThreads>(keys, x.k.row(tile.row) + column, x.k.stride, tile.count);
  start_tile<kDim, kRows, kThreads>(values, x.v.row(tile.row) + column, x.v.stride, tile.count);
  start_queries(step);
  start_douts(step);
  commit_copies();

  float sum_dk[1][kDim / 8][4] = {};
  float sum_dv[1][kDim / 8][4] = {};
  for (bool more = true; more;) {
    wait_for_copies<0>();
    __syncthreads();
    float p[1][kTile / 8][4] = {};
    multiply_transposed<kDim, 1, kTile>(p, keys, row, queries);
    probabilities<kTile>(p, tile, row, step.first, lse, x.scale * kLog2E);
    multiply<kDim, 1, kTile>(sum_dv, p, douts);
    float ds[1][kTile / 8][4] = {};
    multiply_transposed<kDim, 1, kTile>(ds, values, row, douts);
    __syncthreads();  // nobody needs these gradients any more
    Step<kTile> next = step;
    more = next.next(last_head, tile.other_count);
    if (more) {
      start_douts(next);
      commit_copies();
    }
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = 8 * n + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
        ds[0][n][i] = p[0][n][i] * (ds[0][n][i] - delta[query]);
      }
    }
    multiply<kDim, 1, kTile>(sum_dk, ds, queries);
    __syncthreads();  // nor these queries
    if (more) {
      start_queries(next);
      commit_copies();
    }
    step = next;
  }
  add_rows<kDim>(dk, tile.row + row, tile.count - row, column, sum_dk, x.scale);
  add_rows<kDim>(dv, tile.row + row, tile.count - row, column, sum_dv, 1.0F);
}

template <int kDim>
void launch_dkv(const BackwardArguments& x, const Target& dk, const Target& dv, std::int64_t blocks,
                cudaStream_t stream) {
  allow_shared_bytes<dkv_kernel<kDim>>(kSharedBytes<kDim>);
  launch<dkv_kernel<kDim>>(static_cast<unsigned>(blocks), kThreads, kSharedBytes<kDim>, stream, x,
                           dk, dv);
}

}  // namespace

void attention_dkv(const AttentionShape& shape, const TileList& keys,
                   const AttentionGradient& given, Matrix dk, Matrix dv, cudaStream_t stream) {
  if (keys.count == 0) return;
  const BackwardArguments x = backward_arguments(shape, keys, given);
  const std::int64_t blocks = keys.count * shape.kv_heads;
  with_head_dim(shape.head_dim,
                [&]<int kDim>() { launch_dkv<kDim>(x, target(dk), target(dv), blocks, stream); });
}

std::size_t attention_dkv_shared_bytes(int head_dim) {
  std::size_t bytes = 0;
  with_head_dim(head_dim, [&]<int kDim>() { bytes = kSharedBytes<kDim>; });
  return bytes;
}

}  // namespace hydraulis::cuda
