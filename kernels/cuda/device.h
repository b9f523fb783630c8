#pragma once

#include <cstdint>
#include <memory>

#include "kernels/device.h"

namespace hydraulis::cuda {

/// A GPU of this machine, by its number; throws InputError when there is none of that number.
/// `memory_limit_bytes` 0: what the device has.
///
/// Memory comes from a pool that follows the order of streams. The first stream that the device
/// makes is the one it is taken and given back on; work on other streams may use a block too, and
/// the device orders it after the block's allocation and before its release. release() therefore
/// needs no waiting.
std::unique_ptr<Device> make_device(int number, std::int64_t memory_limit_bytes = 0);

}  // namespace hydraulis::cuda
