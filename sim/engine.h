#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace hydraulis {

/// One event of the simulation: when, and what for. The payload is the caller's own number (an
/// index, or a kind and an index packed together).
struct Event {
  double time = 0;  ///< seconds of virtual time
  std::uint32_t payload = 0;
};

/// Future-event list: pops by time, then in the order of pushing. A 4-ary heap of 16-byte records
/// (time, sequence number, payload in one integer), four siblings to a cache line. Popping leaves a
/// hole at the root that the next push fills, so that the usual pop-then-push costs one descent.
class EventQueue {
 public:
  /// `first_sequence` exists for tests of the renumbering after 2³² pushes.
  explicit EventQueue(std::uint32_t first_sequence = 0);

  bool empty() const { return size() == 0; }
  std::size_t size() const { return end_ - kRoot - (hole_ ? 1 : 0); }
  void reserve(std::size_t events);

  /// `time` must be finite and not negative; `Engine` checks it.
  void push(double time, std::uint32_t payload) {
    if (next_sequence_ == std::numeric_limits<std::uint32_t>::max()) renumber();
    // Bits of a non-negative double order like the double itself; adding 0 turns -0 into +0.
    const auto bits = std::bit_cast<std::uint64_t>(time + 0.0);
    const Record record =
        (static_cast<Record>(bits) << 64) | (std::uint64_t{next_sequence_++} << 32) | payload;
    if (hole_) {
      hole_ = false;
      replace_root(record);
    } else {
      append(record);
    }
  }

  /// The earliest event; the queue must not be empty.
  Event pop() {
    if (hole_) fill_hole();
    const Record record = at(kRoot);
    hole_ = true;
    return {std::bit_cast<double>(static_cast<std::uint64_t>(record >> 64)),
            static_cast<std::uint32_t>(record)};
  }

 private:
  __extension__ using Record = unsigned __int128;
  struct alignas(64) Line {
    std::array<Record, 4> records;
  };
  static constexpr Record kNothing = ~Record{0};  ///< later than any event; fills unused slots
  static constexpr std::size_t kRoot = 3;         ///< so that siblings share a line

  static std::size_t first_child(std::size_t i) { return 4 * (i - 2); }
  static std::size_t parent(std::size_t i) { return i / 4 + 2; }
  Record& at(std::size_t i) { return lines_[i / 4].records[i % 4]; }

  void append(Record record) {
    if (end_ == 4 * lines_.size()) grow();
    rise(end_++, record);
  }

  /// Moves earlier parents of a hole down until `record` fits.
  void rise(std::size_t hole, Record record) {
    while (hole > kRoot) {
      const std::size_t up = parent(hole);
      if (at(up) < record) break;
      at(hole) = at(up);
      hole = up;
    }
    at(hole) = record;
  }

  /// Walks the root's hole down to a leaf along the earliest children and lets `record` rise from
  /// there: new events are usually late, so this compares less than testing on the way down.
  void replace_root(Record record) {
    std::size_t hole = kRoot;
    for (std::size_t child = first_child(hole); child < end_; child = first_child(hole)) {
      const auto& siblings = lines_[child / 4].records;
      const std::size_t left = siblings[1] < siblings[0] ? 1 : 0;
      const std::size_t right = siblings[3] < siblings[2] ? 3 : 2;
      const std::size_t least = siblings[right] < siblings[left] ? right : left;
      at(hole) = siblings[least];
      hole = child + least;
    }
    rise(hole, record);
  }

  void fill_hole() {
    hole_ = false;
    --end_;
    const Record last = std::exchange(at(end_), kNothing);
    if (end_ > kRoot) replace_root(last);
  }

  void grow();
  void renumber();

  std::vector<Line> lines_;
  std::size_t end_ = kRoot;  ///< one past the last used slot
  bool hole_ = false;        ///< the root slot was popped and not yet filled
  std::uint32_t next_sequence_;
};

/// Discrete-event engine: a clock and a future-event list. Deterministic: events of equal time are
/// handled in the order they were scheduled.
class Engine {
 public:
  double now() const { return now_; }
  std::uint64_t events() const { return events_; }  ///< handled so far
  std::size_t pending() const { return queue_.size(); }
  void reserve(std::size_t events) { queue_.reserve(events); }

  /// Throws Error (internal) unless `time` is finite and not before now().
  void schedule_at(double time, std::uint32_t payload) {
    // Written so that NaN fails too.
    if (!(time >= now_ && time <= std::numeric_limits<double>::max())) [[unlikely]] {
      refuse(time);
    }
    queue_.push(time, payload);
  }
  void schedule_after(double delay, std::uint32_t payload) { schedule_at(now_ + delay, payload); }

  /// Handles events until none is pending: handler(payload) may schedule more.
  template <typename Handler>
  void run(Handler&& handler) {
    while (!queue_.empty()) {
      const Event event = queue_.pop();
      now_ = event.time;
      ++events_;
      handler(event.payload);
    }
  }

 private:
  [[noreturn]] void refuse(double time) const;

  EventQueue queue_;
  double now_ = 0;
  std::uint64_t events_ = 0;
};

}  // namespace hydraulis
