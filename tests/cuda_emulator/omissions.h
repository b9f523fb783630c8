#pragma once

#include <cstdint>

// Leaves one thing out of a program that runs, to see that it is missed: faults planted in kernels
// as they stand.
namespace emulator {

enum class Omission : std::uint8_t {
  none,
  barrier,     ///< the n-th __syncthreads that each thread comes to
  copy_wait,   ///< the n-th wait for asynchronous copies of each thread
  event_wait,  ///< the n-th wait of a stream for an event
};

/// From now on, counted from 0; nothing with Omission::none.
void leave_out(Omission what, unsigned which = 0);
/// Whether the `which`-th of this kind is to be left out.
bool left_out(Omission what, unsigned which);
/// Counts an event_wait and says whether it is to be left out.
bool next_event_wait_left_out();

}  // namespace emulator
