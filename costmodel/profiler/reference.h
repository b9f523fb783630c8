#pragma once

#include <memory>

#include "costmodel/profiler/bench.h"
#include "costmodel/profiler/kernel_case.h"

namespace hydraulis {

/// What nothing on this device can beat, by the best of several large and small pieces of work and
/// a margin: points above it are measuring faults.
struct Ceilings {
  double flops = 0;
  double bytes_per_second = 0;
};

/// A matrix product that is measured now and again: whether clocks change, which rank is slow.
class Reference {
 public:
  explicit Reference(const Bench& bench);
  /// Runs it until its rate does not change any more (clocks that rise under load), a few seconds
  /// at most, and then measures what nothing can beat.
  Ceilings warm_up(double most_seconds);
  /// Rate of every rank now, FLOP/s, all measuring at once.
  std::vector<double> rates();
  /// Bytes per second of every rank copying a block larger than its caches, all at once; read and
  /// written bytes both count.
  std::vector<double> copy_rates();

 private:
  void choose_size();
  double product_seconds(double seconds);

  Bench bench_;
  KernelPoint point_;
  std::unique_ptr<KernelCase> product_;
};

}  // namespace hydraulis
