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
constexpr std::int64_t kOwnMapping = 256 << 10;  // from here on blocks are mapped one by one

#ifdef __SANITIZE_ADDRESS__
constexpr bool kMap = false;  // the sanitizer guards the edges of heap blocks only
#else
constexpr bool kMap = true;
#endif

bool is_mapping(std::int64_t extent) { return kMap && extent >= kOwnMapping; }

/// Addresses for a block of this capacity.
std::int64_t extent_for(std::int64_t capacity) {
  if (!is_mapping(capacity)) return capacity;
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(capacity)));
}

/// The heap's blocks for what is small; else pages of their own, in huge pages where the system has
/// them. nullptr when there is no memory.
void* take_from_system(std::int64_t extent) {
  const auto size = static_cast<std::size_t>(extent);
  if (!is_mapping(extent)) return std::aligned_alloc(kAlignment, size);
  const auto alignment = static_cast<std::size_t>(std::min(extent, kHugePage));
  const auto padded = size + alignment;
  void* mapped = mmap(nullptr, padded, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* base = static_cast<char*>(mapped);
  const auto lead = static_cast<std::size_t>(-reinterpret_cast<std::uintptr_t>(base)) % alignment;
  if (lead > 0) munmap(base, lead);
  munmap(base + lead + size, padded - lead - size);
  madvise(base + lead, size, MADV_NOHUGEPAGE);  // the last page asked for must not be a huge one
  return base + lead;
}

/// Huge pages for as much as is asked for; they may be refused, then small ones do.
void want_huge_pages(void* block, std::int64_t extent, std::int64_t capacity) {
  const std::int64_t whole = capacity / kHugePage * kHugePage;
  if (!is_mapping(extent) || whole == 0) return;
  madvise(block, static_cast<std::size_t>(whole), MADV_HUGEPAGE);
}

void give_to_system(void* block, std::int64_t extent) noexcept {
  if (is_mapping(extent)) {
    munmap(block, static_cast<std::size_t>(extent));
  } else {
    std::free(block);
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
  for (const auto& [data, block] : used_) {
    unguard(data, block.capacity);
    give_to_system(data, block.extent);
  }
}

/// The idle block of this extent that holds just enough memory, or else the most.
bool BlockPool::take_idle(std::int64_t capacity, std::int64_t extent, Block& block) {
  auto found = by_size_.lower_bound({extent, capacity});
  if (found == by_size_.end() || found->first.first != extent) {
    if (found == by_size_.begin()) return false;
    --found;
    if (found->first.first != extent) return false;
  }
  const auto idle = idle_.find(found->second);
  block = idle->second;
  by_size_.erase(found);
  idle_.erase(idle);
  return true;
}

void BlockPool::use(const Block& block) {
  memory_.allocated += block.capacity;
  used_.emplace(block.data, block);
}

/// Gives the pages behind what was asked back.
void BlockPool::cut(Block& block) noexcept {
  static const auto page = static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
  const std::int64_t kept = (block.capacity + page - 1) / page * page;
  if (kept >= block.resident) return;
  madvise(static_cast<char*>(block.data) + kept, static_cast<std::size_t>(block.extent - kept),
          MADV_DONTNEED);
  memory_.reserved -= block.resident - block.capacity;
  block.resident = block.capacity;
}

void BlockPool::trim(std::int64_t reserved_at_most) noexcept {
  if (memory_.reserved <= reserved_at_most) return;
  for (auto& [data, block] : used_) {
    cut(block);
    if (memory_.reserved <= reserved_at_most) return;
  }
  while (memory_.reserved > reserved_at_most && !idle_.empty()) {
    const auto oldest = idle_.begin();
    const Block block = oldest->second;
    auto [same, last] = by_size_.equal_range({block.extent, block.resident});
    while (same != last && same->second != oldest->first) ++same;
    by_size_.erase(same);
    idle_.erase(oldest);
    memory_.reserved -= block.resident;
    unguard(block.data, block.capacity);
    give_to_system(block.data, block.extent);
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
  // The last bit of a limit is given out exactly, not by class.
  if (capacity > most - memory_.allocated) {
    capacity = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (capacity > most - memory_.allocated) refuse(memory_.limit > 0 ? "limit" : "memory");
  Block block;
  const std::int64_t extent = extent_for(capacity);
  const bool idle = take_idle(capacity, extent, block);
  block.capacity = capacity;
  const std::int64_t more = std::max<std::int64_t>(0, capacity - block.resident);
  if (more > 0) {
    trim(std::min(most - more, std::max(most_used_, memory_.allocated + capacity) * 3 / 2 - more));
  }
  if (!idle) {
    block.extent = extent;
    block.data = take_from_system(extent);
    if (block.data == nullptr) {
      trim(memory_.allocated);
      block.data = take_from_system(extent);
    }
    if (block.data == nullptr) refuse("memory");
    guard(block.data, capacity);
  }
  if (more > 0) want_huge_pages(block.data, extent, capacity);
  block.resident += more;
  memory_.reserved += more;
  use(block);
  memory_.peak = std::max(memory_.peak, memory_.allocated);
  most_used_ = std::max(most_used_, memory_.allocated);
  unguard(block.data, bytes);
#ifndef NDEBUG
  std::memset(block.data, 0xFF, static_cast<std::size_t>(bytes));  // NaN in every number format
#endif
  return block.data;
}

void BlockPool::release(void* block) noexcept {
  if (block == nullptr) return;
  const auto used = used_.find(block);
  if (used == used_.end()) {
    std::fputs("device memory: a block that was not allocated, or not any more, is released\n",
               stderr);
    std::abort();
  }
  const Block given = used->second;
  used_.erase(used);
  memory_.allocated -= given.capacity;
  guard(given.data, given.capacity);
  idle_.emplace(released_, given);
  by_size_.emplace(std::pair(given.extent, given.resident), released_);
  ++released_;
}

}  // namespace hydraulis::cpu
