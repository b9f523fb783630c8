#pragma once

#include <cstdint>
#include <memory>

#include "kernels/device.h"

namespace hydraulis::cpu {

/// The cores of this process as a device whose kernels use `threads` threads.
/// `memory_limit_bytes` 0: what the machine has.
std::unique_ptr<Device> make_device(int threads, std::int64_t memory_limit_bytes);

}  // namespace hydraulis::cpu
