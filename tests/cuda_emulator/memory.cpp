#include "tests/cuda_emulator/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>

#include "tests/cuda_emulator/clock.h"
#include "tests/cuda_emulator/faults.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace emulator {

namespace {

constexpr std::size_t kAlignment = 256;  // what cudaMalloc promises
/// Freed memory is not reused before this much more has been freed, so that who still uses it
/// shows.
/// The address sanitizer has a quarantine of its own.
constexpr std::size_t kQuarantineBytes = kShadow ? std::size_t{64} << 20 : 0;

struct Memory {
  std::map<const char*, Region> regions;  // by address
  std::deque<const char*> freed;
  std::size_t freed_bytes = 0;
  std::size_t in_use = 0;
  std::size_t limit = std::size_t{16} << 30;
};
Memory& memory() {
  static Memory all;
  return all;
}

void guard([[maybe_unused]] const Region& region) {
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(region.begin, region.bytes);
#endif
}

void unguard([[maybe_unused]] const Region& region) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(region.begin, region.bytes);
#endif
}

void forget(const char* begin) {
  const auto found = memory().regions.find(begin);
  unguard(found->second);
  std::free(found->second.begin);
  memory().regions.erase(found);
}

const char* text(AccessKind kind) {
  return kind == AccessKind::read ? "read" : kind == AccessKind::write ? "write" : "atomic update";
}

std::string thread_name(std::uint16_t thread) {
  return thread == kWholeOperation ? "a copy" : fmt::format("thread {}", thread);
}

/// Whether an earlier touch is known to come before the access that is made now.
bool ordered(const Touch& earlier, const Position& now) {
  if (earlier.tick == 0) return true;
  if (earlier.tick < running_operation().first_tick) {
    return done_before_running(operation_of(earlier.tick));
  }
  if (earlier.tick < now.block_tick) return false;  // another block of this kernel
  return earlier.thread == now.thread || earlier.tick < now.barrier_tick ||
         (earlier.thread / 32 == now.thread / 32 && earlier.tick < now.warp_tick);
}

std::string conflict(const Touch& earlier, AccessKind was, AccessKind is, const Position& now) {
  if (earlier.tick < running_operation().first_tick) {
    return fmt::format("missing dependency: {} while {}, on another stream, may still {} it",
                       text(is), operation_of(earlier.tick).name, text(was));
  }
  if (earlier.tick < now.block_tick) {
    return fmt::format("race: {} by {} and {} by {} of another block", text(is),
                       thread_name(now.thread), text(was), thread_name(earlier.thread));
  }
  return fmt::format("race: {} by {} and {} by {} without a barrier between", text(is),
                     thread_name(now.thread), text(was), thread_name(earlier.thread));
}

std::string note_unit(Unit& unit, AccessKind kind, const Position& now) {
  const bool is_atomic = kind == AccessKind::atomic;
  if (!(is_atomic && unit.write.atomic) && !ordered(unit.write, now)) {
    return conflict(unit.write, unit.write.atomic ? AccessKind::atomic : AccessKind::write, kind,
                    now);
  }
  const Touch touch{tick(), now.thread, is_atomic};
  if (kind == AccessKind::read) {
    // One reader that is not ordered with the others suffices to find a write by anybody else.
    if (ordered(unit.read, now)) {
      unit.read = touch;
    } else {
      unit.other_read = touch;
    }
    return {};
  }
  for (const Touch& read : {unit.read, unit.other_read}) {
    if (!ordered(read, now)) return conflict(read, AccessKind::read, kind, now);
  }
  unit = {touch, {}, {}};
  return {};
}

std::string note(Region& region, const void* address, std::size_t bytes, AccessKind kind,
                 const Position& position) {
  if (region.states.empty()) return {};
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(address) - region.begin);
  std::string wrong;
  for (std::size_t i = offset; i < offset + bytes && wrong.empty(); ++i) {
    if (region.states[i] == ByteState::in_flight) {
      wrong = fmt::format("cp.async: {} before its wait", text(kind));
    }
  }
  for (std::size_t u = offset / kUnitBytes;
       u < (offset + bytes + kUnitBytes - 1) / kUnitBytes && wrong.empty(); ++u) {
    wrong = note_unit(region.units[u], kind, position);
  }
  if (!wrong.empty()) wrong += fmt::format(", at byte {} of {}", offset, region.name);
  return wrong;
}

}  // namespace

void Region::clear_shadow() {
  if (!kShadow || bytes > kMostShadowedBytes) return;
  units.assign((bytes + kUnitBytes - 1) / kUnitBytes, Unit{});
  states.assign(bytes, ByteState::uninitialised);
}

void* reserve_device_memory(std::size_t bytes) {
  Memory& all = memory();
  if (bytes > all.limit - all.in_use) return nullptr;
  // No rounding up: the address sanitizer guards the block's very end.
  void* block = nullptr;
  if (posix_memalign(&block, kAlignment, bytes) != 0) return nullptr;
  Region region;
  region.begin = static_cast<char*>(block);
  region.bytes = bytes;
  region.state = Region::State::not_yet;
  region.name = fmt::format("a block of {} bytes", bytes);
  guard(region);
  all.in_use += bytes;
  all.regions[region.begin] = std::move(region);
  return block;
}

void make_device_memory(void* begin) {
  Region& region = memory().regions.at(static_cast<char*>(begin));
  region.state = Region::State::live;
  unguard(region);
  if (region.bytes <= kMostShadowedBytes) std::memset(region.begin, 0xFF, region.bytes);
  region.clear_shadow();
  // Who uses it must come after this.
  for (Unit& unit : region.units) unit.write = {tick(), kWholeOperation, false};
}

void free_device_memory(void* begin) {
  Memory& all = memory();
  const auto found = all.regions.find(static_cast<char*>(begin));
  if (found == all.regions.end() || found->second.state == Region::State::freed) {
    report("free of memory that is not allocated, or not any more");
    return;
  }
  Region& region = found->second;
  const std::string wrong = note(region, region.begin, region.bytes, AccessKind::write, {});
  if (!wrong.empty()) report(wrong + " (its release)");
  region.state = Region::State::freed;
  region.units = {};
  region.states = {};
  guard(region);
  all.in_use -= region.bytes;
  all.freed_bytes += region.bytes;
  all.freed.push_back(region.begin);
  while (all.freed_bytes > kQuarantineBytes) {
    all.freed_bytes -= all.regions.at(all.freed.front()).bytes;
    forget(all.freed.front());
    all.freed.pop_front();
  }
}

std::size_t device_bytes_in_use() { return memory().in_use; }
void set_device_bytes(std::size_t bytes) { memory().limit = bytes; }
std::size_t device_bytes() { return memory().limit; }

Region* find_device_region(const void* address) {
  auto& regions = memory().regions;
  auto after = regions.upper_bound(static_cast<const char*>(address));
  if (after == regions.begin()) return nullptr;
  Region& region = std::prev(after)->second;
  return region.holds(address) ? &region : nullptr;
}

std::string wrong_with(const void* address, std::size_t bytes) {
  if (bytes == 0) return {};
  const Region* region = find_device_region(address);
  if (region == nullptr) return "out of bounds: not device memory";
  if (region->state == Region::State::not_yet) {
    return "missing dependency: memory whose allocation on a stream may not have happened yet";
  }
  if (region->state == Region::State::freed) return "use after free of " + region->name;
  const auto room =
      static_cast<std::size_t>(region->begin + region->bytes - static_cast<const char*>(address));
  if (bytes > room) return "out of bounds: past the end of " + region->name;
  return {};
}

std::string note_copied(Region& region, const void* address, std::size_t bytes) {
  return note(region, address, bytes, AccessKind::read, {});
}

std::string note_access(Region& region, const void* address, std::size_t bytes, AccessKind kind,
                        const Position& position) {
  if (region.states.empty()) return {};
  if (kind != AccessKind::write) {
    const auto offset = static_cast<const char*>(address) - region.begin;
    const auto first = region.states.begin() + offset;
    if (std::find(first, first + static_cast<std::ptrdiff_t>(bytes), ByteState::uninitialised) !=
        first + static_cast<std::ptrdiff_t>(bytes)) {
      return fmt::format("{} of uninitialised memory, at byte {} of {}", text(kind), offset,
                         region.name);
    }
  }
  std::string wrong = note(region, address, bytes, kind, position);
  if (wrong.empty() && kind == AccessKind::write) {
    set_state(region, address, bytes, ByteState::written);
  }
  return wrong;
}

bool touch_device(const void* address, std::size_t bytes, AccessKind kind, const std::string& who) {
  std::string wrong = wrong_with(address, bytes);
  if (wrong.empty()) wrong = note_access(*find_device_region(address), address, bytes, kind, {});
  if (!wrong.empty()) report(wrong + " (" + who + ")");
  return wrong.empty();
}

void set_state(Region& region, const void* address, std::size_t bytes, ByteState state) {
  if (region.states.empty()) return;
  const auto offset = static_cast<const char*>(address) - region.begin;
  std::fill_n(region.states.begin() + offset, bytes, state);
}

void copy_states(const void* from, void* to, std::size_t bytes) {
  if (bytes == 0) return;
  const Region& source = *find_device_region(from);
  Region& target = *find_device_region(to);
  if (source.states.empty() || target.states.empty()) return;
  std::copy_n(source.states.begin() + (static_cast<const char*>(from) - source.begin), bytes,
              target.states.begin() + (static_cast<char*>(to) - target.begin));
}

}  // namespace emulator
