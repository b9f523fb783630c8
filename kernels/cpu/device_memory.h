#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "kernels/device.h"

namespace hydraulis::cpu {

/// Smallest size class that holds this many bytes. Classes are 1/32 of a power of two apart (and at
/// least 64 bytes), so a block wastes at most 1/32 of itself: what asks for 95 % of a limit fits.
std::int64_t size_class(std::int64_t bytes);

/// Blocks of memory, kept when they are given back. Small ones serve the next of their size class.
/// Large ones are mappings of addresses up to the next power of two, of which only what was ever
/// asked for takes memory: they serve whatever fits into their addresses, so that steps of ever
/// other lengths do not fetch fresh pages from the system. What is kept goes back to the system
/// when the limit needs it (first what blocks in use hold beyond what was asked of them), or to
/// keep what is reserved below 1.5 times the most that was ever in use.
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
  struct Block {
    void* data = nullptr;
    std::int64_t extent = 0;    ///< addresses taken
    std::int64_t capacity = 0;  ///< of what was last asked
    std::int64_t resident = 0;  ///< bytes from the start that may take memory
  };
  /// Idle blocks by what they can hold and how much memory they hold.
  using Sizes = std::multimap<std::pair<std::int64_t, std::int64_t>, std::uint64_t>;

  bool take_idle(std::int64_t capacity, std::int64_t extent, Block& block);
  void use(const Block& block);
  void cut(Block& block) noexcept;
  void trim(std::int64_t reserved_at_most) noexcept;

  DeviceMemory memory_;
  std::int64_t machine_bytes_ = 0;
  std::int64_t most_used_ = 0;             // ever
  std::unordered_map<void*, Block> used_;  // by address
  std::map<std::uint64_t, Block> idle_;    // by when it was given back
  Sizes by_size_;                          // the same
  std::uint64_t released_ = 0;
};

}  // namespace hydraulis::cpu
