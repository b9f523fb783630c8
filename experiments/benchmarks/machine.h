#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

// What this machine can do at most, measured beside the kernels: programs that include this are
// compiled for the machine as the kernels are.
namespace hydraulis {

/// Best of several times, in seconds: other work on the machine only ever makes a run longer.
class BestTime {
 public:
  template <typename Work>
  void measure(Work work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    last_ = elapsed.count();
    best_ = std::min(best_, last_);
  }
  double best() const { return best_; }
  double last() const { return last_; }

 private:
  double best_ = std::numeric_limits<double>::infinity();
  double last_ = 0;
};

inline constexpr std::int64_t kPeakSteps = 100000;

/// kPeakSteps rounds of independent multiply-adds in registers on every thread; returns their
/// floating-point operations.
template <typename T>
double multiply_add_in_registers(int threads) {
  constexpr int chains = cpu::kVectorRegisters - 4;
  std::vector<T> results(static_cast<std::size_t>(threads) * 64);
  cpu::parallel(threads, threads, [&](std::int64_t part, int) {
    cpu::Vector<T> sums[chains];
#pragma GCC unroll 32
    for (int i = 0; i < chains; ++i) sums[i] = cpu::broadcast(static_cast<T>(i));
    const cpu::Vector<T> factor = cpu::broadcast(T(0.999));
    const cpu::Vector<T> term = cpu::broadcast(T(1e-3));
    for (std::int64_t step = 0; step < kPeakSteps; ++step) {
#pragma GCC unroll 32
      for (int i = 0; i < chains; ++i) sums[i] = sums[i] * factor + term;
    }
    T total = 0;
#pragma GCC unroll 32
    for (int i = 0; i < chains; ++i) total += cpu::sum_of_lanes<T>(sums[i]);
    results[static_cast<std::size_t>(part) * 64] = total;
  });
  volatile T sink = results[0];
  (void)sink;
  return 2.0 * chains * cpu::kLanes<T> * static_cast<double>(kPeakSteps) * threads;
}

/// Buffers far larger than the caches, copied from one to the other by all threads.
class CopyYardstick {
 public:
  CopyYardstick() : from_(kBytes, 1), to_(kBytes, 2) {}
  /// Returns the bytes read and written.
  double copy(int threads) {
    cpu::parallel(threads, threads, [&](std::int64_t part, int) {
      const cpu::Range range = cpu::part_of(kBytes, threads, part);
      std::memcpy(to_.data() + range.begin, from_.data() + range.begin,
                  static_cast<std::size_t>(range.end - range.begin));
    });
    return 2.0 * kBytes;
  }

 private:
  static constexpr std::int64_t kBytes = std::int64_t{256} << 20;
  std::vector<char> from_, to_;
};

}  // namespace hydraulis
