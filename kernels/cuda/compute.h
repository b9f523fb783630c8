#pragma once

#include <array>
#include <memory>

#include "kernels/compute.h"

namespace hydraulis::cuda {

/// Numbers of a head that attention on tensor cores has a kernel for.
inline constexpr std::array kHeadSizes{32, 64, 80, 96, 128};

/// The kernels of a device that make_device() made, for matrices of bf16 or f32; sums are f32.
/// Whatever the matrices' type, these are f32: inverse_rms, rotary tables, lse, delta, row_max and
/// sums, and all that the optimizer works on. dweight and dtable may be f32 or the matrices' type.
/// Calls put work on their stream and return, sum_squares apart, which waits for its result.
std::unique_ptr<Compute> make_compute(Device& device);

}  // namespace hydraulis::cuda
