#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/tensor_core.cuh"

// Tiles of bf16 rows in shared memory and products of them on tensor cores. A tile's rows have kDim
// numbers, a multiple of 16, and lie 64 or 128 numbers apart; the 16-byte chunks of row r are
// stored in the order c ^ (r % 8), so that the eight rows that ldmatrix reads at once lie in unlike
// banks.
namespace hydraulis::cuda {

template <int kDim>
constexpr int kRowBytes = kDim <= 64 ? 128 : 256;

template <int kDim>
__device__ inline SharedAddress rows_bytes(int rows) {
  return static_cast<SharedAddress>(rows * kRowBytes<kDim>);
}

template <int kDim>
__device__ inline SharedAddress chunk_of(SharedAddress tile, int row, int chunk) {
  return tile + static_cast<SharedAddress>(row * kRowBytes<kDim> + (chunk ^ (row & 7)) * 16);
}

/// Starts copies of `rows` rows, those beyond as zeros.
template <int kDim, int kRows, int kThreads>
__device__ inline void start_tile(SharedAddress tile, const bf16* from, std::int64_t stride,
                                  std::int64_t rows) {
  static_assert(kDim % 16 == 0 && kDim <= 128);
  constexpr int kChunks = kRowBytes<kDim> / 16;
  constexpr int kStep = kThreads / kChunks;  // rows that all threads copy at once
  static_assert(kStep % 8 == 0 && kRows % kStep == 0);
  const int row = static_cast<int>(threadIdx.x) / kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  if (kChunks * 8 > kDim && chunk * 8 >= kDim) return;
  const SharedAddress to = chunk_of<kDim>(tile, row, chunk);
  const bf16* own = from + row * stride + chunk * 8;
  const int left = rows < kRows ? static_cast<int>(rows) : kRows;
#pragma unroll 1  // unrolled, its addresses take registers that the products need
  for (int i = 0; i < kRows; i += kStep) {
    const bool valid = row + i < left;
    copy_async_16(to + rows_bytes<kDim>(i), valid ? own : from, valid);
    own += kStep * stride;
  }
}

// Pieces of 16 rows and 16 columns for ldmatrix: where this lane's row of the piece at the tile's
// first columns lies. Columns 16·step further it lies at that address ^ 32·step, because the order
// of chunks is a ^ too (tiles begin at multiples of 1024 bytes).
__device__ inline SharedAddress piece_at(SharedAddress begin, int step) {
  return begin ^ static_cast<SharedAddress>(32 * step);
}

/// Pieces of 16 rows from `row` and 16 columns, as the first operand.
template <int kDim>
__device__ inline SharedAddress first_operands(SharedAddress tile, int row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return chunk_of<kDim>(tile, row + lane % 16, lane / 16);
}

/// Their transposes: second operands b[0], b[1] for the first eight rows, b[2], b[3] for the
/// others.
template <int kDim>
__device__ inline SharedAddress transposed_operands(SharedAddress tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return chunk_of<kDim>(tile, lane / 16 * 8 + lane % 8, lane / 8 % 2);
}

/// As they are, loaded transposed: second operands b[0], b[1] for the first eight columns, b[2],
/// b[3] for the others.
template <int kDim>
__device__ inline SharedAddress second_operands(SharedAddress tile) {
  return first_operands<kDim>(tile, 0);
}

__device__ inline std::uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  std::uint32_t bits = 0;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}

/// d[t][n] += (rows 16t… of a warp's tile from `row`) · (rows of the other tile, transposed):
/// kTiles times 16 rows against kOthers rows, over kDim.
template <int kDim, int kTiles, int kOthers>
__device__ inline void multiply_transposed(float (&d)[kTiles][kOthers / 8][4], SharedAddress tile,
                                           int row, SharedAddress other) {
  const SharedAddress a_begin = first_operands<kDim>(tile, row);
  const SharedAddress b_begin = transposed_operands<kDim>(other);
// As many steps at once as leave no register to be spilled.
#pragma unroll(kTiles == 1 ? 4 : kDim / 16)
  for (int step = 0; step < kDim / 16; ++step) {
    std::uint32_t a[kTiles][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      load_matrices<false>(a[t], piece_at(a_begin, step) + rows_bytes<kDim>(16 * t));
    }
#pragma unroll
    for (int n = 0; n < kOthers / 16; ++n) {
      std::uint32_t b[4];
      load_matrices<false>(b, piece_at(b_begin, step) + rows_bytes<kDim>(16 * n));
      const std::uint32_t low[2] = {b[0], b[1]};
      const std::uint32_t high[2] = {b[2], b[3]};
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        mma_16x8x16(d[t][2 * n], a[t], low);
        mma_16x8x16(d[t][2 * n + 1], a[t], high);
      }
    }
  }
}

/// d[t] += p[t] · other: the results of a product, rounded to bf16, against kOthers rows of kDim.
template <int kDim, int kTiles, int kOthers>
__device__ inline void multiply(float (&d)[kTiles][kDim / 8][4],
                                const float (&p)[kTiles][kOthers / 8][4], SharedAddress other) {
  const SharedAddress b_begin = second_operands<kDim>(other);
#pragma unroll
  for (int step = 0; step < kOthers / 16; ++step) {
    std::uint32_t a[kTiles][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      a[t][0] = pack(p[t][2 * step][0], p[t][2 * step][1]);
      a[t][1] = pack(p[t][2 * step][2], p[t][2 * step][3]);
      a[t][2] = pack(p[t][2 * step + 1][0], p[t][2 * step + 1][1]);
      a[t][3] = pack(p[t][2 * step + 1][2], p[t][2 * step + 1][3]);
    }
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      std::uint32_t b[4];
      load_matrices<true>(b, piece_at(b_begin, n) + rows_bytes<kDim>(16 * step));
      const std::uint32_t low[2] = {b[0], b[1]};
      const std::uint32_t high[2] = {b[2], b[3]};
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        mma_16x8x16(d[t][2 * n], a[t], low);
        mma_16x8x16(d[t][2 * n + 1], a[t], high);
      }
    }
  }
}

/// The greatest or the sum over the four lanes that hold a row.
template <typename Operation>
__device__ inline float over_row(float value) {
  value = Operation::of(value, __shfl_xor_sync(0xFFFFFFFFU, value, 1));
  return Operation::of(value, __shfl_xor_sync(0xFFFFFFFFU, value, 2));
}

/// Two neighbours in memory of either type, read and written as float.
__device__ inline float2 load_pair(const void* matrix, bool is_bf16, std::int64_t offset) {
  if (!is_bf16) return *reinterpret_cast<const float2*>(static_cast<const float*>(matrix) + offset);
  return __bfloat1622float2(
      *reinterpret_cast<const __nv_bfloat162*>(static_cast<const bf16*>(matrix) + offset));
}
__device__ inline void store_pair(void* matrix, bool is_bf16, std::int64_t offset, float2 value) {
  if (!is_bf16) {
    *reinterpret_cast<float2*>(static_cast<float*>(matrix) + offset) = value;
  } else {
    *reinterpret_cast<__nv_bfloat162*>(static_cast<bf16*>(matrix) + offset) =
        __floats2bfloat162_rn(value.x, value.y);
  }
}

}  // namespace hydraulis::cuda
