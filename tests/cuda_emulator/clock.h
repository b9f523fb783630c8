#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Which work is known to be done before which: a vector clock over streams.
namespace emulator {

/// By stream: how many of its operations are known to be done.
class Clock {
 public:
  std::uint32_t at(std::size_t stream) const {
    return stream < counts_.size() ? counts_[stream] : 0;
  }
  void set(std::size_t stream, std::uint32_t count) {
    if (stream >= counts_.size()) counts_.resize(stream + 1);
    counts_[stream] = count;
  }
  void merge(const Clock& other) {
    for (std::size_t s = 0; s < other.counts_.size(); ++s) {
      if (other.counts_[s] > at(s)) set(s, other.counts_[s]);
    }
  }

 private:
  std::vector<std::uint32_t> counts_;
};

/// An operation that was put on a stream and has begun.
struct Operation {
  std::uint32_t first_tick = 0;
  std::size_t stream = 0;
  std::uint32_t index = 0;  ///< counted from 1 in its stream
  std::string name;
  Clock before;  ///< what is done before it begins
};

/// Emulated time: moves on with every operation, block and barrier, never back.
std::uint32_t tick();
std::uint32_t next_tick();

void begin_operation(Operation operation);
/// Operations so far count as done before all that come.
void forget_operations();
/// The one that runs; its last tick is now.
const Operation& running_operation();
/// Whose tick this was.
const Operation& operation_of(std::uint32_t tick);
/// Whether an earlier operation is known to be done before the running one.
bool done_before_running(const Operation& earlier);

}  // namespace emulator
