#pragma once

#include <cstdint>

#include "tests/cuda_emulator/block.h"

// Warp-wide instructions by the fragment layouts that the PTX ISA documents. Every lane calls them.
namespace emulator {

/// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 with d as c.
void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                 const char* file = __builtin_FILE(), int line = __builtin_LINE());
/// ldmatrix.sync.aligned.m8n8.x4[.trans].shared.b16
void load_matrices(std::uint32_t (&r)[4], const void* row, bool transposed,
                   const char* file = __builtin_FILE(), int line = __builtin_LINE());

}  // namespace emulator
