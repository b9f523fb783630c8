#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// Memory that kernels may touch, each allocation a heap block of its own with a shadow that knows
// what has been written and who touched it last.
namespace emulator {

#ifdef __SANITIZE_ADDRESS__
/// Built with the address sanitizer, which sees every access by itself; only the emulator's own
/// accesses are checked here, and there is no shadow.
inline constexpr bool kShadow = false;
#else
/// Every access of a kernel is checked: kernels are compiled with calls before each of them.
inline constexpr bool kShadow = true;
#endif

enum class AccessKind : std::uint8_t { read, write, atomic };

/// A touch of a place: when, and by which thread of its block (kWholeOperation: a copy, not a
/// kernel).
struct Touch {
  std::uint32_t tick = 0;
  std::uint16_t thread = 0;
  bool atomic = false;
};
inline constexpr std::uint16_t kWholeOperation = 0xFFFF;

/// Races are looked for in units of two bytes, the smallest number that the backend stores.
inline constexpr std::size_t kUnitBytes = 2;
struct Unit {
  Touch write;
  Touch read;
  Touch other_read;  ///< by another thread, not ordered with `read`
};
enum class ByteState : std::uint8_t { uninitialised, written, in_flight };

/// Larger allocations have no shadow and are not filled: tests of far offsets touch little of them.
inline constexpr std::size_t kMostShadowedBytes = std::size_t{1} << 30;

/// A stretch of device or shared memory.
struct Region {
  enum class State : std::uint8_t { not_yet, live, freed };
  char* begin = nullptr;
  std::size_t bytes = 0;
  State state = State::live;
  bool shared = false;
  std::string name;
  std::vector<Unit> units;
  std::vector<ByteState> states;

  bool holds(const void* address) const { return address >= begin && address < begin + bytes; }
  /// All bytes unwritten and untouched.
  void clear_shadow();
};

/// Where the running thread stands, for the order of accesses.
struct Position {
  std::uint32_t block_tick = 0;    ///< the block began
  std::uint32_t barrier_tick = 0;  ///< its last barrier
  std::uint32_t warp_tick = 0;     ///< the last __syncwarp of the thread's warp
  std::uint16_t thread = kWholeOperation;
};

/// Takes memory for an allocation that is made later, in the order of a stream; nullptr when the
/// device has no more.
void* reserve_device_memory(std::size_t bytes);
/// The allocation is made: memory full of NaN (all bits set).
void make_device_memory(void* begin);
void free_device_memory(void* begin);
/// Frees what no operation ever got to free.
std::size_t device_bytes_in_use();
void set_device_bytes(std::size_t bytes);
std::size_t device_bytes();
/// The region that holds the address, freed ones too; nullptr if none does.
Region* find_device_region(const void* address);
/// Whether the whole stretch is live device memory: an empty text, or what is wrong with it.
std::string wrong_with(const void* address, std::size_t bytes);

/// Checks and notes an access that lies in the region. Returns what is wrong with it, or nothing.
std::string note_access(Region& region, const void* address, std::size_t bytes, AccessKind kind,
                        const Position& position);
/// The same for what a copy reads, which need not have been written.
std::string note_copied(Region& region, const void* address, std::size_t bytes);
/// An access by work that is no kernel of ours; what is wrong is reported, and then it is false.
bool touch_device(const void* address, std::size_t bytes, AccessKind kind, const std::string& who);
/// The bytes are now what the accessor wrote, unwritten, or on their way.
void set_state(Region& region, const void* address, std::size_t bytes, ByteState state);
/// Copies what is known of the bytes along with them.
void copy_states(const void* from, void* to, std::size_t bytes);

}  // namespace emulator
