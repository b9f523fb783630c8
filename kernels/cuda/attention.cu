#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_fragments.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/shared.cuh"

namespace hydraulis::cuda {

namespace {

constexpr float kLog2E = 1.4426950408889634F;
constexpr int kThreads = 128;
constexpr int kRows = 128;    // queries of a block
constexpr int kRowTiles = 2;  // times 16 queries of a warp
static_assert(kRows == kThreads / 32 * kRowTiles * 16);

/// Keys that are in shared memory at a time: as many as leave no register to be spilled.
template <int kDim>
constexpr int kKeys = kDim <= 64 ? 64 : 32;
template <int kDim>
constexpr std::size_t kSharedBytes = (kRows + 2 * kKeys<kDim>)*kRowBytes<kDim>;

struct Arguments {
  const AttentionTile* tiles;
  View<const bf16> q, k, v;
  void* out;
  std::int64_t out_stride;
  bool out_is_bf16;
  View<float> lse;
  int heads;
  int group;  // query heads of a key head
  float scale;
  bool accumulate;
};

/// A warp's scores of one tile of keys become probabilities relative to the greatest score so far.
template <int kDim>
struct Softmax {
  float most[kRowTiles][2];
  float sum[kRowTiles][2];  // this lane's part

  __device__ Softmax() {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        most[t][half] = -INFINITY;
        sum[t][half] = 0;
      }
    }
  }

  __device__ void add(float (&s)[kRowTiles][kKeys<kDim> / 8][4], float (&o)[kRowTiles][kDim / 8][4],
                      float factor) {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float now = most[t][half];
#pragma unroll
        for (int n = 0; n < kKeys<kDim> / 8; ++n) {
          now = fmaxf(now, fmaxf(s[t][n][2 * half], s[t][n][2 * half + 1]));
        }
        now = over_row<Max>(now);
        // A row that has seen no key yet has no greatest to subtract.
        const float shift = now == -INFINITY ? 0.0F : now * factor;
        const float kept = exp2f(most[t][half] * factor - shift);
        most[t][half] = now;
        float added = 0;
#pragma unroll
        for (int n = 0; n < kKeys<kDim> / 8; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            s[t][n][i] = exp2f(s[t][n][i] * factor - shift);
            added += s[t][n][i];
          }
        }
        sum[t][half] = sum[t][half] * kept + added;
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          o[t][n][2 * half] *= kept;
          o[t][n][2 * half + 1] *= kept;
        }
      }
    }
  }
};

/// Scores of keys that a query does not see, or that are not there, become −∞.
template <int kDim>
__device__ void mask(float (&s)[kRowTiles][kKeys<kDim> / 8][4], const AttentionTile& tile, int row,
                     int first_key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int query = tile.first + row + 16 * t + lane / 4 + i / 2 * 8;
      const bool before_end = tile.causal != 0 && query < tile.other_count;
      const int limit = (before_end ? query + 1 : tile.other_count) - first_key;
#pragma unroll
      for (int n = 0; n < kKeys<kDim> / 8; ++n) {
        if (8 * n + lane % 4 * 2 + i % 2 >= limit) s[t][n][i] = -INFINITY;
      }
    }
  }
}

/// Writes a warp's rows, merged with what is there if asked to.
template <int kDim>
__device__ void write(const Arguments& x, const AttentionTile& tile, int head, int row,
                      const Softmax<kDim>& softmax, const float (&o)[kRowTiles][kDim / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = over_row<Sum>(softmax.sum[t][half]);
      const int own = row + 16 * t + lane / 4 + half * 8;
      const bool there = own < tile.count;
      const std::int64_t query = tile.row + (there ? own : 0);
      float lse = softmax.most[t][half] * x.scale + logf(sum);
      float factor = 1.0F / sum;
      float kept = 0;
      float* lse_place = x.lse.row(query) + head;
      if (x.accumulate && there) {
        const float before = *lse_place;
        const float most = fmaxf(before, lse);
        const float merged = most + log1pf(expf(fminf(before, lse) - most));
        kept = expf(before - merged);
        factor *= expf(lse - merged);
        lse = merged;
      }
      if (x.accumulate) __syncwarp();  // all four lanes of a row have read it
      if (!there) continue;
      if (lane % 4 == 0) *lse_place = lse;
      const std::int64_t offset = query * x.out_stride + std::int64_t{head} * kDim + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        float2 value = make_float2(o[t][n][2 * half] * factor, o[t][n][2 * half + 1] * factor);
        if (x.accumulate) {
          const float2 before = load_pair(x.out, x.out_is_bf16, offset + 8 * n);
          value.x += before.x * kept;
          value.y += before.y * kept;
        }
        store_pair(x.out, x.out_is_bf16, offset + 8 * n, value);
      }
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads) attention_kernel(Arguments x) {
  HYDRAULIS_DYNAMIC_SHARED(memory);
  const SharedAddress queries = shared_address(memory);
  const SharedAddress keys = queries + rows_bytes<kDim>(kRows);
  const SharedAddress values = keys + rows_bytes<kDim>(kKeys<kDim>);
  const AttentionTile tile = x.tiles[blockIdx.x / static_cast<unsigned>(x.heads)];
  const int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(x.heads));
  const std::int64_t kv_column = std::int64_t{head / x.group} * kDim;
  const bf16* k = x.k.row(tile.other_row) + kv_column;
  const bf16* v = x.v.row(tile.other_row) + kv_column;
  const int row = static_cast<int>(threadIdx.x) / 32 * kRowTiles * 16;
  const float factor = x.scale * kLog2E;

  start_tile<kDim, kRows, kThreads>(queries, x.q.row(tile.row) + std::int64_t{head} * kDim,
                                    x.q.stride, tile.count);
  start_tile<kDim, kKeys<kDim>, kThreads>(keys, k, x.k.stride, tile.other_count);
  commit_copies();

  Softmax<kDim> softmax;
  float o[kRowTiles][kDim / 8][4] = {};
  for (int first = 0; first < tile.other_count; first += kKeys<kDim>) {
    wait_for_copies<0>();
    __syncthreads();  // the keys are there, and nobody needs the last values any more
    start_tile<kDim, kKeys<kDim>, kThreads>(values, v, x.v.stride, tile.other_count - first);
    commit_copies();
    float s[kRowTiles][kKeys<kDim> / 8][4] = {};
    multiply_transposed<kDim, kRowTiles, kKeys<kDim>>(s, queries, row, keys);
    const int all_see = tile.causal != 0 ? tile.first + row + 1 : tile.other_count;
    const int end = first + kKeys<kDim>;
    if (end > all_see || end > tile.other_count) {
      mask<kDim>(s, tile, row, first);
    }
    wait_for_copies<0>();
    __syncthreads();  // the values are there, and nobody needs these keys any more
    k += kKeys<kDim> * x.k.stride;
    v += kKeys<kDim> * x.v.stride;
    if (first + kKeys<kDim> < tile.other_count) {
      start_tile<kDim, kKeys<kDim>, kThreads>(keys, k, x.k.stride,
                                              tile.other_count - first - kKeys<kDim>);
      commit_copies();
    }
    softmax.add(s, o, factor);
    multiply<kDim, kRowTiles, kKeys<kDim>>(o, s, values);
  }
  write<kDim>(x, tile, head, row, softmax, o);
}

template <int kDim>
void launch_attention(const Arguments& x, std::int64_t blocks, cudaStream_t stream) {
  allow_shared_bytes<attention_kernel<kDim>>(kSharedBytes<kDim>);
  launch<attention_kernel<kDim>>(static_cast<unsigned>(blocks), kThreads, kSharedBytes<kDim>,
                                 stream, x);
}

}  // namespace

std::int64_t attention_tile_rows() { return kRows; }
std::size_t attention_shared_bytes(int head_dim) {
  std::size_t bytes = 0;
  with_head_dim(head_dim, [&]<int kDim>() { bytes = kSharedBytes<kDim>; });
  return bytes;
}

void attention(const AttentionShape& shape, const TileList& queries, ConstMatrix q, ConstMatrix k,
               ConstMatrix v, bool accumulate, Matrix out, Matrix lse, cudaStream_t stream) {
  if (queries.count == 0) return;
  const Arguments x{queries.tiles,
                    view<bf16>(q),
                    view<bf16>(k),
                    view<bf16>(v),
                    out.data,
                    out.stride,
                    out.type == DataType::bf16,
                    view<float>(lse),
                    shape.heads,
                    shape.heads / shape.kv_heads,
                    static_cast<float>(shape.scale),
                    accumulate};
  const std::int64_t blocks = queries.count * shape.heads;
  with_head_dim(shape.head_dim, [&]<int kDim>() { launch_attention<kDim>(x, blocks, stream); });
}

}  // namespace hydraulis::cuda
