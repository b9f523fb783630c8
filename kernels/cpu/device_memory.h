#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "kernels/device.h"

namespace hydraulis::cpu {

/// Smallest size class that holds this many bytes. Classes are 1/32 of a power of two apart (and at
/// least 64 bytes), so a block wastes at most 1/32 of itself: what asks for 95 % of a limit fits.
std::int64_t size_class(std::int64_t bytes);

/// Blocks of memory, kept by size class when they are given back. What is kept goes back to the
/// system, least recently used first, when the limit needs it, or to keep what is reserved below
/// 1.5 times the most that was ever in use. Large blocks come from the system one by one, so they
/// never fragment a heap.
class BlockPool {
 public:
  explicit BlockPool(std::int64_t limit_bytes = 0);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// Aligned to 64 bytes. Throws InfeasibleError.
  void* allocate(std::int64_t bytes);
  void release(void* block) noexcept;
  const DeviceMemory& memory() const { return memory_; }
  void reset_peak() { memory_.peak = memory_.allocated; }

 private:
  struct Idle {
    void* block = nullptr;
    std::int64_t capacity = 0;
  };
  void* take_idle(std::int64_t capacity);
  void trim(std::int64_t reserved_at_most) noexcept;

  DeviceMemory memory_;
  std::int64_t machine_bytes_ = 0;
  std::int64_t most_used_ = 0;                          // ever
  std::unordered_map<void*, std::int64_t> used_;        // capacities
  std::map<std::uint64_t, Idle> idle_;                  // by when it was given back
  std::multimap<std::int64_t, std::uint64_t> by_size_;  // the same, by capacity
  std::uint64_t released_ = 0;
};

}  // namespace hydraulis::cpu
