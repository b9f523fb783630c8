#pragma once

#include <cuda_runtime.h>

// Shared memory is declared through these, so that the emulator, which defines its own, sees it.
#ifndef HYDRAULIS_CUDA_EMULATOR
/// HYDRAULIS_SHARED(float, sums, 32): an array of the block.
#define HYDRAULIS_SHARED(TYPE, NAME, COUNT) __shared__ __align__(16) TYPE NAME[COUNT]
/// What the launch gave, as `char*`, aligned to 1024 bytes.
#define HYDRAULIS_DYNAMIC_SHARED(NAME) extern __shared__ __align__(1024) char NAME[]
#endif
