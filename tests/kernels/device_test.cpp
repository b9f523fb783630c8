#include "kernels/device.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
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

TEST(Device, GivenBackBlocksServeTheNextOfTheirSize) {
  const auto device = start_cpu_process(1).device;
  void* first = device->allocate(10 * kMiB);
  const std::int64_t reserved = device->memory().reserved;
  device->release(first);
  EXPECT_EQ(device->memory().reserved, reserved);
  EXPECT_EQ(device->allocate(10 * kMiB), first);
  EXPECT_EQ(device->memory().reserved, reserved);
  device->release(first);
}

TEST(Device, SizeClassesWasteAtMostOneThirtySecond) {
  std::int64_t previous = 0;
  for (std::int64_t bytes = 1; bytes < std::int64_t{1} << 45; bytes += 1 + bytes / 7) {
    const std::int64_t c = cpu::size_class(bytes);
    ASSERT_GE(c, bytes);
    ASSERT_LE(c, std::max(bytes + 63, bytes + bytes / 32 + 1));
    ASSERT_EQ(c % 64, 0);
    ASSERT_EQ(cpu::size_class(c), c);
    ASSERT_GE(c, previous);
    previous = c;
  }
}

TEST(Device, RefusesWhatItsLimitDoesNotAllowAndSaysWhatWouldFit) {
  const auto device = start_cpu_process(1, 100 * kMiB).device;
  void* half = device->allocate(60 * kMiB);
  try {
    device->allocate(50 * kMiB);
    FAIL() << "110 of 100 MiB";
  } catch (const InfeasibleError& e) {
    const std::string message = e.what();
    for (const std::int64_t number : {50 * kMiB, 60 * kMiB, 100 * kMiB, 40 * kMiB}) {
      EXPECT_NE(message.find(std::to_string(number)), std::string::npos)
          << number << ": " << message;
    }
  }
  void* rest = device->allocate(40 * kMiB);  // to the last byte
  EXPECT_EQ(device->memory().allocated, device->memory().limit);
  EXPECT_THROW(device->allocate(1), InfeasibleError);
  device->release(half);
  // What lies idle in other sizes does not count against the limit.
  void* whole = device->allocate(59 * kMiB + 1);
  EXPECT_LE(device->memory().reserved, device->memory().limit);
  device->release(whole);
  device->release(rest);
  EXPECT_THROW(device->allocate(std::numeric_limits<std::int64_t>::max()), InfeasibleError);
  EXPECT_THROW(device->allocate(-1), InfeasibleError);
}

TEST(Device, RefusesMoreThanTheMachineHas) {
  const auto device = start_cpu_process(1).device;
  EXPECT_THROW(device->allocate(std::int64_t{1} << 50), InfeasibleError);
  EXPECT_EQ(device->memory().allocated, 0);
}

// Case C04: lengths that vary from step to step neither fragment memory nor let it grow.
TEST(Device, StepsOfRandomLengthsAt95PercentOfTheLimitFit) {
  constexpr std::int64_t limit = 256 * kMiB;
  const auto device = start_cpu_process(1, limit).device;
  Random random(11, 0);
  for (int step = 0; step < 200; ++step) {
    std::vector<void*> blocks;
    std::int64_t left = limit / 100 * 95;
    while (left > 0) {
      // A few large blocks and many small ones, released in another order than taken.
      const auto most = static_cast<double>(random.uniform() < 0.3 ? limit / 4 : limit / 100);
      const std::int64_t bytes =
          std::min(left, 4096 + static_cast<std::int64_t>(random.uniform() * most));
      blocks.push_back(device->allocate(bytes));
      left -= bytes;
      static_cast<char*>(blocks.back())[bytes - 1] = 1;
      ASSERT_LE(device->memory().reserved, limit);
    }
    while (!blocks.empty()) {
      std::swap(blocks[random.below(blocks.size())], blocks.back());
      device->release(blocks.back());
      blocks.pop_back();
    }
  }
  EXPECT_EQ(device->memory().allocated, 0);
}

#ifndef __SANITIZE_ADDRESS__
/// Pages that the process has had to fetch so far.
long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Steps of other lengths use the pages of the steps before them, with a limit and without.
TEST(Device, OtherLengthsTouchNoFreshPages) {
  for (const std::int64_t limit : {std::int64_t{0}, 512 * kMiB}) {
    const auto device = start_cpu_process(1, limit).device;
    const auto step = [&](std::int64_t length) {
      std::vector<void*> blocks;
      for (int layer = 0; layer < 10; ++layer) {
        blocks.push_back(device->allocate(length * 4096));
        std::memset(blocks.back(), 1, static_cast<std::size_t>(length * 4096));
      }
      for (void* block : blocks) device->release(block);
    };
    step(4000);
    const std::int64_t reserved = device->memory().reserved;
    const long before = page_faults();
    Random random(13, 0);
    for (int i = 0; i < 50; ++i) step(2100 + static_cast<std::int64_t>(random.below(1900)));
    EXPECT_LT(page_faults() - before, 500) << limit;  // all of it has 40,000 small pages
    EXPECT_EQ(device->memory().reserved, reserved);
  }
}
#endif

TEST(Device, WithoutALimitIdleMemoryStaysBelowHalfOfThePeak) {
  const auto device = start_cpu_process(1).device;
  Random random(12, 0);
  std::int64_t peak = 0;
  for (int step = 0; step < 300; ++step) {
    device->reset_peak();  // as a trainer does each step; must not empty the pool
    const std::int64_t before = device->memory().reserved;
    std::vector<void*> blocks;
    const auto length = static_cast<std::int64_t>(100 + random.uniform() * 4000);
    for (int layer = 0; layer < 10; ++layer) blocks.push_back(device->allocate(length * 512 * 4));
    peak = std::max(peak, device->memory().peak);
    ASSERT_LE(device->memory().reserved, peak * 3 / 2);
    if (step > 50) {
      ASSERT_GE(device->memory().reserved, before / 2);
    }
    for (void* block : blocks) device->release(block);
  }
}

TEST(Device, CopiesAndZerosInStreamOrder) {
  const auto device = start_cpu_process(1).device;
  const auto stream = device->make_stream();
  DeviceBuffer a(*device, 1000);
  DeviceBuffer b(*device, 1000);
  const std::vector<char> text(1000, 'x');
  std::vector<char> back(1000);
  device->copy_to_device(a.data(), text.data(), 1000, *stream);
  device->zero(b.data(), 1000, *stream);
  device->copy(b.data(), a.data(), 999, *stream);
  device->copy(nullptr, nullptr, 0, *stream);
  device->copy_to_host(back.data(), b.data(), 1000, *stream);
  const auto event = device->record(*stream);
  EXPECT_TRUE(event->done());
  device->wait(*stream, event);
  device->synchronize(*stream);
  EXPECT_EQ(back[998], 'x');
  EXPECT_EQ(back[999], '\0');
  const auto later = device->record(*stream);
  EXPECT_GE(later->seconds(), event->seconds());
}

cpu_set_t cores(std::initializer_list<int> list) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int core : list) CPU_SET(core, &mask);
  return mask;
}

TEST(Device, CoresAreSharedAmongTheRanksThatMayUseThem) {
  using cpu::fair_threads;
  const auto all = cores({0, 1, 2, 3, 4, 5});
  EXPECT_EQ(fair_threads({all}, 0), 6);
  EXPECT_EQ(fair_threads({all, all, all}, 1), 2);
  EXPECT_EQ(fair_threads({all, all, all, all}, 3), 1);
  EXPECT_EQ(fair_threads(std::vector<cpu_set_t>(8, all), 0), 1);  // more ranks than cores
  // Bound to cores of their own, all of them; overlapping, their part.
  EXPECT_EQ(fair_threads({cores({0, 1}), cores({2, 3, 4})}, 1), 3);
  EXPECT_EQ(fair_threads({cores({0, 1, 2}), cores({2, 3})}, 0), 2);
  EXPECT_EQ(fair_threads({cores({0, 1, 2}), cores({2, 3})}, 1), 1);
  EXPECT_EQ(start_cpu_process(3).device->threads(), 3);
  EXPECT_GE(start_cpu_process().device->threads(), 1);
}

}  // namespace
}  // namespace hydraulis
