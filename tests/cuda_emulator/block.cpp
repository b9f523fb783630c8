#include "tests/cuda_emulator/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/cuda_emulator/clock.h"
#include "tests/cuda_emulator/faults.h"
#include "tests/cuda_emulator/fibers.h"
#include "tests/cuda_emulator/include/cuda_runtime.h"
#include "tests/cuda_emulator/omissions.h"
#include "tests/cuda_emulator/streams.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

// The linker's names for where the program's own code and data begin and end.
extern const char image_begin asm("__executable_start");
extern const char image_end asm("end");

// NOLINTBEGIN(readability-identifier-naming): CUDA's names
dim3 gridDim;
dim3 blockDim;
uint3 blockIdx;
uint3 threadIdx;
// NOLINTEND(readability-identifier-naming)

namespace emulator {

namespace {

constexpr std::size_t kSharedBytes = 256 * 1024;
constexpr std::size_t kSharedGap = 256;  // between arrays, nobody's

struct AsyncCopy {
  char* to;
  std::array<char, 16> data;
  unsigned bytes;
};

struct Thread {
  enum class Wait : std::uint8_t { none, barrier, warp };
  Fiber fiber;
  uint3 index;
  Wait wait = Wait::none;
  Place place;
  const WarpWork* work = nullptr;
  std::uint32_t mask = 0;
  void* part = nullptr;
  unsigned barriers = 0;  // that it has come to
  unsigned copy_waits = 0;
  std::vector<AsyncCopy> open_group;
  std::deque<std::vector<AsyncCopy>> groups;
};

struct alignas(1024) SharedMemory {
  char bytes[kSharedBytes];
};

struct Block {
  const Launch* launch = nullptr;
  std::vector<std::unique_ptr<Thread>> threads;  // of the largest block so far
  unsigned count = 0;
  Thread* running = nullptr;
  unsigned running_number = 0;
  std::uint32_t first_tick = 0;
  std::uint32_t barrier_tick = 0;
  std::array<std::uint32_t, 32> warp_ticks{};
  std::unique_ptr<SharedMemory> shared_memory = std::make_unique<SharedMemory>();
  std::size_t shared_used = 0;
  std::map<const void*, Region> shared;  // by key
  std::array<Region*, 4> recent{};       // device memory that was touched last
  unsigned oldest = 0;
};

// Kernels run one at a time, under the lock.
Block& block() {
  static Block only;
  return only;
}
constinit thread_local Block* running_block = nullptr;

Region& add_shared(const void* key, const std::string& name, std::size_t bytes,
                   std::size_t alignment) {
  Block& b = block();
  const std::size_t begin = (b.shared_used + alignment - 1) / alignment * alignment;
  if (begin + bytes + kSharedGap > kSharedBytes) fail("more shared memory than any device has");
  Region region;
  region.begin = b.shared_memory->bytes + begin;
  region.bytes = bytes;
  region.shared = true;
  region.name = name;
  b.shared_used = begin + bytes + kSharedGap;
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(region.begin, bytes);
#endif
  std::memset(region.begin, 0xFF, bytes);
  region.clear_shadow();
  return b.shared[key] = std::move(region);
}

std::string who(const std::string& what) {
  const Block& b = block();
  return fmt::format("{} (kernel {}, block ({}, {}, {}), thread {})", what, b.launch->name,
                     blockIdx.x, blockIdx.y, blockIdx.z, b.running_number);
}

Position position() {
  const Block& b = block();
  return {b.first_tick, b.barrier_tick, b.warp_ticks[b.running_number / 32],
          static_cast<std::uint16_t>(b.running_number)};
}

/// Where every thread is, for a barrier that never comes.
std::string describe_waiting() {
  const Block& b = block();
  std::map<std::string, std::pair<unsigned, unsigned>> places;  // count, first thread
  for (unsigned t = 0; t < b.count; ++t) {
    const Thread& thread = *b.threads[t];
    const std::string state =
        thread.fiber.ended() ? "ended"
        : thread.wait == Thread::Wait::barrier
            ? fmt::format("at __syncthreads, {}:{}", thread.place.file, thread.place.line)
            : fmt::format("at {} of lanes {:#x}, {}:{}", thread.work->name, thread.mask,
                          thread.place.file, thread.place.line);
    auto& entry = places.try_emplace(state, 0, t).first->second;
    ++entry.first;
  }
  std::string text = "divergent barrier:";
  for (const auto& [state, threads] : places) {
    text += fmt::format(" [{} threads from {} on: {}]", threads.first, threads.second, state);
  }
  return text;
}

void release_barrier() {
  Block& b = block();
  const Place first = b.threads[0]->place;
  for (unsigned t = 0; t < b.count; ++t) {
    const Thread& thread = *b.threads[t];
    if (thread.place.line != first.line || std::strcmp(thread.place.file, first.file) != 0) {
      report(who(describe_waiting()));
      return;
    }
  }
  b.barrier_tick = next_tick();
  for (unsigned t = 0; t < b.count; ++t) b.threads[t]->wait = Thread::Wait::none;
}

void run_thread(unsigned number) {
  Block& b = block();
  b.running_number = number;
  b.running = b.threads[number].get();
  threadIdx = b.running->index;
  running_block = &b;
  b.running->fiber.resume();
  running_block = nullptr;
}

void run_block(const Launch& launch) {
  Block& b = block();
  b.first_tick = b.barrier_tick = next_tick();
  b.warp_ticks.fill(b.first_tick);
  b.shared.clear();
  b.shared_used = kSharedGap;
  b.recent = {};
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(b.shared_memory->bytes, kSharedBytes);
#endif
  if (launch.shared_bytes > 0) {
    add_shared(nullptr, "dynamic shared memory", launch.shared_bytes, 1024);
  }
  const std::function<void()> body = [&] { launch.call(launch.kernel, launch.arguments); };
  std::vector<unsigned> order(b.count);
  std::iota(order.begin(), order.end(), 0U);
  for (unsigned t = b.count; t > 1; --t) std::swap(order[t - 1], order[random_below(t)]);
  for (unsigned t = 0; t < b.count; ++t) {
    Thread& thread = *b.threads[t];
    thread.wait = Thread::Wait::none;
    thread.barriers = 0;
    thread.copy_waits = 0;
    thread.open_group.clear();
    thread.groups.clear();
    thread.fiber.start(body);
  }
  unsigned ended = 0;
  while (ended < b.count) {
    bool moved = false;
    for (const unsigned t : order) {
      Thread& thread = *b.threads[t];
      if (thread.fiber.ended() || thread.wait != Thread::Wait::none) continue;
      run_thread(t);
      moved = true;
      if (faulty()) return;
      if (!thread.fiber.ended()) continue;
      ++ended;
      if (!thread.groups.empty() || !thread.open_group.empty()) {
        report(who("cp.async: a thread ends before it has waited for its copies"));
        return;
      }
    }
    if (moved || ended == b.count) continue;
    const bool all_at_barrier =
        std::all_of(b.threads.begin(), b.threads.begin() + b.count, [](const auto& thread) {
          return !thread->fiber.ended() && thread->wait == Thread::Wait::barrier;
        });
    if (all_at_barrier) {
      release_barrier();
    } else {
      report(who(describe_waiting()));
    }
    if (faulty()) return;
  }
}

void suspend() { block().running->fiber.suspend(); }

bool within(const void* address, const void* begin, std::size_t bytes) {
  const auto* a = static_cast<const char*>(address);
  const auto* b = static_cast<const char*>(begin);
  return a >= b && a < b + bytes;
}

Region* find_region(const void* address) {
  Block& b = block();
  if (within(address, b.shared_memory->bytes, kSharedBytes)) {
    for (auto& [key, region] : b.shared) {
      if (region.holds(address)) return &region;
    }
    fail("out of bounds: shared memory past the end of its array");
  }
  for (Region* region : b.recent) {
    if (region != nullptr && region->holds(address)) return region;
  }
  Region* found = find_device_region(address);
  if (found != nullptr) b.recent[b.oldest++ % b.recent.size()] = found;
  return found;
}

void finish_async_copies(std::vector<AsyncCopy>& group) {
  for (const AsyncCopy& copy : group) {
    Region& region = region_of(copy.to, copy.bytes);
    set_state(region, copy.to, copy.bytes, ByteState::written);
    std::memcpy(copy.to, copy.data.data(), copy.bytes);
    touch(copy.to, copy.bytes, AccessKind::write);
  }
}

std::map<const void*, std::string>& names() {
  static std::map<const void*, std::string> all;
  return all;
}

}  // namespace

void name_kernel(const void* kernel, std::string name) {
  const std::lock_guard<std::recursive_mutex> guard(lock());
  names()[kernel] = std::move(name);
}

std::string name_of(const void* kernel) {
  const auto found = names().find(kernel);
  return found == names().end() ? "?" : found->second;
}

void run_blocks(const Launch& launch) {
  Block& b = block();
  b.launch = &launch;
  b.count = static_cast<unsigned>(launch.block.count());
  while (b.threads.size() < b.count) b.threads.push_back(std::make_unique<Thread>());
  for (unsigned t = 0; t < b.count; ++t) {
    const unsigned row = t / launch.block.x;
    b.threads[t]->index = {t % launch.block.x, row % launch.block.y, row / launch.block.y};
  }
  gridDim = {launch.grid.x, launch.grid.y, launch.grid.z};
  blockDim = {launch.block.x, launch.block.y, launch.block.z};
  // A random start and a random odd step reach every block of the next power of two once.
  const std::uint64_t blocks = launch.grid.count();
  std::uint64_t places = 1;
  while (places < blocks) places *= 2;
  const std::uint64_t step = 2 * random_below(places) + 1;
  std::uint64_t place = random_below(places);
  for (std::uint64_t i = 0; i < places && !faulty(); ++i, place = (place + step) % places) {
    if (place >= blocks) continue;
    const std::uint64_t row = place / launch.grid.x;
    blockIdx = {static_cast<unsigned>(place % launch.grid.x),
                static_cast<unsigned>(row % launch.grid.y),
                static_cast<unsigned>(row / launch.grid.y)};
    run_block(launch);
  }
}

bool in_kernel() { return running_block != nullptr; }
unsigned lane() { return block().running_number % 32; }

void fail(const std::string& what) {
  report(who(what));
  block().running->fiber.abandon();
}

void block_barrier(Place place) {
  Thread& thread = *block().running;
  if (left_out(Omission::barrier, thread.barriers++)) return;
  thread.wait = Thread::Wait::barrier;
  thread.place = place;
  suspend();
}

void warp_together(const WarpWork& work, std::uint32_t mask, void* part, Place place) {
  Block& b = block();
  const unsigned first = b.running_number / 32 * 32;
  const unsigned lanes = std::min(32U, b.count - first);
  if (lanes < 32 && mask == 0xFFFFFFFFU) mask = (1U << lanes) - 1;  // the block's last warp
  if ((mask >> lane() & 1) == 0) fail(fmt::format("{} without the lane itself", work.name));
  Thread& self = *b.running;
  self.wait = Thread::Wait::warp;
  self.work = &work;
  self.mask = mask;
  self.part = part;
  self.place = place;
  for (unsigned l = 0; l < lanes; ++l) {
    if ((mask >> l & 1) == 0) continue;
    const Thread& other = *b.threads[first + l];
    if (other.fiber.ended() || other.wait != Thread::Wait::warp) {
      suspend();  // not here yet, or never: then the block notices that nobody moves
      return;
    }
    if (other.work != &work || other.mask != mask || other.place.line != place.line ||
        std::strcmp(other.place.file, place.file) != 0) {
      fail(describe_waiting());
    }
  }
  void* parts[32] = {};
  for (unsigned l = 0; l < lanes; ++l) {
    if ((mask >> l & 1) != 0) parts[l] = b.threads[first + l]->part;
  }
  if (work.complete != nullptr) work.complete(parts, mask);
  if (work.orders_memory && mask == (lanes == 32 ? 0xFFFFFFFFU : (1U << lanes) - 1)) {
    b.warp_ticks[first / 32] = next_tick();
  }
  for (unsigned l = 0; l < lanes; ++l) {
    if ((mask >> l & 1) != 0) b.threads[first + l]->wait = Thread::Wait::none;
  }
}

void* static_shared(const void* key, std::size_t bytes, std::size_t alignment) {
  const auto found = block().shared.find(key);
  if (found != block().shared.end()) return found->second.begin;
  std::size_t total = bytes;
  for (const auto& [other, region] : block().shared) {
    if (other != nullptr) total += region.bytes;
  }
  if (total > std::size_t{48} * 1024) fail("more than 48 KiB of static shared memory");
  return add_shared(key, fmt::format("a shared array of {} bytes", bytes), bytes, alignment).begin;
}

void* dynamic_shared() {
  const auto found = block().shared.find(nullptr);
  return found == block().shared.end() ? nullptr : found->second.begin;
}

Region& region_of(const void* address, std::size_t bytes) {
  Region* region = find_region(address);
  if (region == nullptr || !region->shared) {
    if (const std::string wrong = wrong_with(address, bytes); !wrong.empty()) fail(wrong);
  } else if (static_cast<std::size_t>(region->begin + region->bytes -
                                      static_cast<const char*>(address)) < bytes) {
    fail("out of bounds: past the end of " + region->name);
  }
  return *region;
}

void touch(const void* address, std::size_t bytes, AccessKind kind) {
  if (std::has_single_bit(bytes) && reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
    fail(fmt::format("misaligned {}-byte access", bytes));
  }
  const std::string wrong =
      note_access(region_of(address, bytes), address, bytes, kind, position());
  if (!wrong.empty()) fail(wrong);
}

void touch_any(const void* address, std::size_t bytes, AccessKind kind) {
  const Block& b = block();
  if (b.running->fiber.owns(address)) return;
  if (find_region(address) == nullptr) {
    // Constants, and what the emulator itself has in static memory.
    const auto image = static_cast<std::size_t>(&image_end - &image_begin);
    if (within(address, &image_begin, image)) return;
    if (kind == AccessKind::read &&
        within(address, b.launch->arguments, b.launch->argument_bytes)) {
      return;
    }
  }
  touch(address, bytes, kind);
}

void start_async_copy(void* to, const void* from, unsigned bytes, unsigned bytes_to_read) {
  AsyncCopy copy{static_cast<char*>(to), {}, bytes};
  if (reinterpret_cast<std::uintptr_t>(from) % bytes != 0) fail("misaligned cp.async");
  if (bytes_to_read > 0) {
    touch(from, bytes_to_read, AccessKind::read);
    std::memcpy(copy.data.data(), from, bytes_to_read);
  }
  touch(to, bytes, AccessKind::write);
  set_state(region_of(to, bytes), to, bytes, ByteState::in_flight);
  std::memset(to, 0xFF, bytes);  // nothing to rely on until the wait
  block().running->open_group.push_back(copy);
}

void commit_async_copies() {
  Thread& thread = *block().running;
  thread.groups.push_back(std::exchange(thread.open_group, {}));
}

void wait_async_copies(unsigned groups) {
  Thread& thread = *block().running;
  if (left_out(Omission::copy_wait, thread.copy_waits++)) return;
  while (thread.groups.size() > groups) {
    finish_async_copies(thread.groups.front());
    thread.groups.pop_front();
  }
}

}  // namespace emulator
