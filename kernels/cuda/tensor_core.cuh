#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#ifdef HYDRAULIS_CUDA_EMULATOR
#include <emulated_tensor_core.h>
#endif

// Tensor-core and copy instructions of sm_80 and later, one function each. In the emulator they
// follow the same documented layouts ("Matrix fragments" in the PTX ISA); with g = lane / 4 and
// p = lane % 4:
//   a: a[0] = rows g, columns 2p, 2p+1; a[1] = rows g+8; a[2], a[3] = the same, columns 8 further
//   b: b[0] = rows 2p, 2p+1 of column g; b[1] = rows 8 further
//   d: d[0], d[1] = row g, columns 2p, 2p+1; d[2], d[3] = row g+8
namespace hydraulis::cuda {

/// Where something lies in shared memory, as a number to calculate with: 32 bits on a GPU.
#ifdef HYDRAULIS_CUDA_EMULATOR
using SharedAddress = std::uintptr_t;
#else
using SharedAddress = std::uint32_t;
#endif
__device__ inline SharedAddress shared_address(const void* place) {
#ifdef HYDRAULIS_CUDA_EMULATOR
  return reinterpret_cast<SharedAddress>(place);
#else
  return static_cast<SharedAddress>(__cvta_generic_to_shared(place));
#endif
}

/// d += a·b, a [16, 16] and b [16, 8] of bf16, d [16, 8] of f32.
__device__ inline void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4],
                                   const std::uint32_t (&b)[2]) {
#ifdef HYDRAULIS_CUDA_EMULATOR
  emulator::mma_16x8x16(d, a, b);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/// Four 8×8 matrices of 16-bit numbers from shared memory: lane i gives the address of row i % 8 of
/// matrix i / 8 and gets columns 2p, 2p+1 of row g of each; transposed, rows 2p, 2p+1 of column g.
template <bool kTransposed>
__device__ inline void load_matrices(std::uint32_t (&r)[4], SharedAddress row) {
#ifdef HYDRAULIS_CUDA_EMULATOR
  emulator::load_matrices(r, reinterpret_cast<const void*>(row), kTransposed);
#else
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
  }
#endif
}

/// Starts a copy of 16 bytes from device to shared memory; zeros, and no read, unless `valid`.
__device__ inline void copy_async_16(SharedAddress to, const void* from, bool valid) {
#ifdef HYDRAULIS_CUDA_EMULATOR
  emulator::start_async_copy(reinterpret_cast<void*>(to), from, 16, valid ? 16 : 0);
#else
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(from), "r"(bytes)
               : "memory");
#endif
}

/// The copies that this thread has started since the last commit are a group.
__device__ inline void commit_copies() {
#ifdef HYDRAULIS_CUDA_EMULATOR
  emulator::commit_async_copies();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Returns when at most the last kGroups groups of this thread are still under way.
template <int kGroups>
__device__ inline void wait_for_copies() {
#ifdef HYDRAULIS_CUDA_EMULATOR
  emulator::wait_async_copies(kGroups);
#else
  asm volatile("cp.async.wait_group %0;" : : "n"(kGroups) : "memory");
#endif
}

}  // namespace hydraulis::cuda
