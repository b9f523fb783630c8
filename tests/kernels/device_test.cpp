#include "kernels/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "kernels/communicator.h"
#include "kernels/cpu/device_memory.h"
#include "kernels/cpu/process.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TEST(Device, BlocksAreAlignedAndCounted) {
  const auto device = start_cpu_process(1).device;
  EXPECT_EQ(device->allocate(0), nullptr);
  device->release(nullptr);
  std::vector<void*> blocks;
  std::int64_t asked = 0;
  for (const std::int64_t bytes : {1L, 63L, 64L, 65L, 1000L, 5000L, 3 * kMiB, 9 * kMiB + 1}) {
    void* block = device->allocate(bytes);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U) << bytes;
    std::memset(block, 1, static_cast<std::size_t>(bytes));
    blocks.push_back(block);
    asked += bytes;
  }
  const DeviceMemory memory = device->memory();
  EXPECT_GE(memory.allocated, asked);
  EXPECT_LE(memory.allocated, asked + asked / 32 + 64 * 8);
  EXPECT_EQ(memory.peak, memory.allocated);
  for (void* block : blocks) device->release(block);
  EXPECT_EQ(device->memory().allocated, 0);
  EXPECT_EQ(device->memory().peak, memory.peak);
  device->reset_peak();
  EXPECT_EQ(device->memory().peak, 0);
}

}  // namespace
}  // namespace hydraulis
