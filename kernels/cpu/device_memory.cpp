#include "kernels/cpu/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/error.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace hydraulis::cpu {

namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;
constexpr std::int64_t kOwnMapping = 2 * kHugePage;  // from here on blocks are mapped one by one
/// Without a limit an idle block may serve a request that is smaller by up to this share.
constexpr double kLoose = 1.125;

#ifdef __SANITIZE_ADDRESS__
constexpr bool kMap = false;  // the sanitizer guards the edges of heap blocks only
#else
constexpr bool kMap = true;
#endif

/// The heap's blocks for what is small; else pages of their own, in huge pages where the system has
/// them. nullptr when there is no memory.
void* take_from_system(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  if (!kMap || bytes < kOwnMapping) return std::aligned_alloc(kAlignment, size);
  const auto padded = size + kHugePage;
  void* mapped = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* base = static_cast<char*>(mapped);
  const auto lead = static_cast<std::size_t>(-reinterpret_cast<std::uintptr_t>(base)) %
                    static_cast<std::size_t>(kHugePage);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto end = (lead + size + page - 1) / page * page;
  if (lead > 0) munmap(base, lead);
  if (end < padded) munmap(base + end, padded - end);
  madvise(base + lead, size, MADV_HUGEPAGE);  // may be refused: then small pages do
  return base + lead;
}

void give_to_system(void* block, std::int64_t bytes) noexcept {
  if (!kMap || bytes < kOwnMapping) {
    std::free(block);
  } else {
    munmap(block, static_cast<std::size_t>(bytes));
  }
}

// The address sanitizer reports who touches a block past the bytes asked for, or an idle one.
void guard([[maybe_unused]] void* block, [[maybe_unused]] std::int64_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(block, static_cast<std::size_t>(bytes));
#endif
}

void unguard([[maybe_unused]] void* block, [[maybe_unused]] std::int64_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(block, static_cast<std::size_t>(bytes));
#endif
}

}  // namespace

std::int64_t size_class(std::int64_t bytes) {
  const auto octave = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(bytes)));
  const std::int64_t step = std::max(kAlignment, octave / 32);
  return (bytes + step - 1) / step * step;
}

BlockPool::BlockPool(std::int64_t limit_bytes)
    : machine_bytes_(static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE)) {
  memory_.limit = limit_bytes;
}

BlockPool::~BlockPool() {
  trim(0);
  for (auto [block, capacity] : used_) {
    unguard(block, capacity);
    give_to_system(block, capacity);
  }
}

void* BlockPool::take_idle(std::int64_t capacity) {
  const double most =
      memory_.limit > 0 ? static_cast<double>(capacity) : static_cast<double>(capacity) * kLoose;
  const auto found = by_size_.lower_bound(capacity);
  if (found == by_size_.end() || static_cast<double>(found->first) > most) return nullptr;
  const auto idle = idle_.find(found->second);
  void* block = idle->second.block;
  by_size_.erase(found);
  used_.emplace(block, idle->second.capacity);
  memory_.allocated += idle->second.capacity;
  idle_.erase(idle);
  return block;
}

void BlockPool::trim(std::int64_t reserved_at_most) noexcept {
  while (memory_.reserved > reserved_at_most && !idle_.empty()) {
    const auto oldest = idle_.begin();
    const auto [block, capacity] = oldest->second;
    auto [same, last] = by_size_.equal_range(capacity);
    while (same != last && same->second != oldest->first) ++same;
    by_size_.erase(same);
    idle_.erase(oldest);
    memory_.reserved -= capacity;
    unguard(block, capacity);
    give_to_system(block, capacity);
  }
}

void* BlockPool::allocate(std::int64_t bytes) {
  if (bytes < 0) throw InfeasibleError("a block of {} bytes of memory was asked for", bytes);
  if (bytes == 0) return nullptr;
  const std::int64_t most = memory_.limit > 0 ? memory_.limit : machine_bytes_;
  const auto refuse = [&](const char* why) {
    throw InfeasibleError(
        "out of memory: {} bytes asked, {} in use, {} reserved, {} of {} bytes: at most {} more "
        "fit",
        bytes, memory_.allocated, memory_.reserved, why, most,
        std::max<std::int64_t>(0, most - memory_.allocated));
  };
  // Also keeps the rounding below from overflowing.
  if (bytes > most - memory_.allocated) refuse(memory_.limit > 0 ? "limit" : "memory");
  std::int64_t capacity = size_class(bytes);
  void* block = take_idle(capacity);
  if (block == nullptr) {
    // The last bit of a limit is given out exactly, not by class.
    if (capacity > most - memory_.allocated) {
      capacity = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    if (capacity > most - memory_.allocated) refuse(memory_.limit > 0 ? "limit" : "memory");
    trim(std::min(most - capacity,
                  std::max(most_used_, memory_.allocated + capacity) * 3 / 2 - capacity));
    block = take_from_system(capacity);
    if (block == nullptr) {
      trim(memory_.allocated);
      block = take_from_system(capacity);
    }
    if (block == nullptr) refuse("memory");
    used_.emplace(block, capacity);
    memory_.allocated += capacity;
    memory_.reserved += capacity;
    guard(block, capacity);
  }
  memory_.peak = std::max(memory_.peak, memory_.allocated);
  most_used_ = std::max(most_used_, memory_.allocated);
  unguard(block, bytes);
#ifndef NDEBUG
  std::memset(block, 0xFF, static_cast<std::size_t>(bytes));  // NaN in every number format
#endif
  return block;
}

void BlockPool::release(void* block) noexcept {
  if (block == nullptr) return;
  const auto used = used_.find(block);
  if (used == used_.end()) {
    std::fputs("device memory: a block that was not allocated, or not any more, is released\n",
               stderr);
    std::abort();
  }
  const std::int64_t capacity = used->second;
  used_.erase(used);
  memory_.allocated -= capacity;
  guard(block, capacity);
  idle_.emplace(released_, Idle{block, capacity});
  by_size_.emplace(capacity, released_);
  ++released_;
}

}  // namespace hydraulis::cpu
