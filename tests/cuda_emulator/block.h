#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/cuda_emulator/memory.h"

// One block of a kernel at a time: its threads are fibers that run until they must wait.
namespace emulator {

struct Place {
  const char* file = "";
  int line = 0;
};

struct Dimensions {
  unsigned x = 1, y = 1, z = 1;
  std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

struct Launch {
  std::string name;
  Dimensions grid;
  Dimensions block;
  std::size_t shared_bytes = 0;
  const void* kernel = nullptr;
  /// Where the launch keeps the arguments, which threads copy.
  const void* arguments = nullptr;
  /// Calls the kernel with them.
  void (*call)(const void* kernel, const void* arguments) = nullptr;
  std::size_t argument_bytes = 0;
};

/// What faults call a kernel: its name in the source.
void name_kernel(const void* kernel, std::string name);
std::string name_of(const void* kernel);

/// Runs every block, in random order. What goes wrong is reported; the rest then does not run.
void run_blocks(const Launch& launch);

/// Whether the caller is a thread of a kernel.
bool in_kernel();
/// Its position in its warp.
unsigned lane();
/// Ends the kernel here and now.
[[noreturn]] void fail(const std::string& what);

/// Waits for all threads of the block.
void block_barrier(Place place);

/// What lanes of a warp do together: every lane of the mask brings its part, and the last to come
/// does the work for all.
struct WarpWork {
  const char* name;
  void (*complete)(void* const parts[32], std::uint32_t mask);  ///< parts by lane
  bool orders_memory = false;
};
void warp_together(const WarpWork& work, std::uint32_t mask, void* part, Place place);

/// Memory of the block, the same for all its threads: `key` names the array.
void* static_shared(const void* key, std::size_t bytes, std::size_t alignment);
void* dynamic_shared();

/// Checks an access by the running thread to device or shared memory and notes it.
void touch(const void* address, std::size_t bytes, AccessKind kind);
/// The same for any access that compiled code makes, which may be to the thread's own stack.
void touch_any(const void* address, std::size_t bytes, AccessKind kind);
/// The region of device or shared memory that the running thread means; fails if there is none.
Region& region_of(const void* address, std::size_t bytes);

/// A 16-byte (or shorter) copy from device to shared memory that is under way until its wait.
void start_async_copy(void* to, const void* from, unsigned bytes, unsigned bytes_to_read);
void commit_async_copies();
/// Returns when at most so many of the thread's last groups are still under way.
void wait_async_copies(unsigned groups);

}  // namespace emulator
