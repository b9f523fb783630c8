#include "sim/engine.h"

#include <algorithm>

#include "base/error.h"

namespace hydraulis {

EventQueue::EventQueue(std::uint32_t first_sequence) : next_sequence_(first_sequence) { grow(); }

void EventQueue::reserve(std::size_t events) {
  const std::size_t lines = (kRoot + events + 3) / 4;
  if (lines > lines_.size()) lines_.resize(lines, Line{{kNothing, kNothing, kNothing, kNothing}});
}

void EventQueue::grow() { reserve(std::max<std::size_t>(16, 8 * lines_.size())); }

// Pending events keep their order and get the numbers 0, 1, …: a sorted array is a heap.
void EventQueue::renumber() {
  if (hole_) fill_hole();
  std::vector<Record> pending;
  for (std::size_t i = kRoot; i < end_; ++i) pending.push_back(at(i));
  if (pending.size() >= std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ExitCode::internal, "event queue: more than 2^32 events pending");
  }
  std::sort(pending.begin(), pending.end());
  next_sequence_ = 0;
  constexpr Record kSequenceBits = static_cast<Record>(0xffffffffU) << 32;
  for (std::size_t i = 0; i < pending.size(); ++i) {
    at(kRoot + i) = (pending[i] & ~kSequenceBits) | (static_cast<Record>(next_sequence_++) << 32);
  }
}

void Engine::refuse(double time) const {
  throw Error(ExitCode::internal,
              fmt::format("engine: event at {} s; expected a finite time not before now ({} s)",
                          time, now_));
}

}  // namespace hydraulis
