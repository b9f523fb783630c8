#pragma once

#include <cstdint>
#include <vector>

#include "costmodel/operator_profile.h"
#include "costmodel/profiler/bench.h"

namespace hydraulis {

/// The size that is measured for a wanted one: the next that divides evenly over the ranks.
std::int64_t divisible_bytes(std::int64_t wanted, int ranks, DataType type);

/// A collective of one size with its buffers. All ranks of the group make the calls together.
class CollectiveCase {
 public:
  /// `bytes` as CollectiveSample counts them, divisible. Throws InfeasibleError when the buffers do
  /// not fit into device memory.
  CollectiveCase(const Bench& bench, Communicator& group, Collective operation, std::int64_t bytes);
  /// Runs it once on known data and compares every value that comes out. Values that differ.
  std::int64_t wrong_values();
  /// Seconds of `times` executions; of a message one way, half of a round trip.
  double run(int times);

 private:
  void launch();
  template <typename T>
  std::vector<T> input() const;
  template <typename T>
  std::vector<T> expected() const;
  template <typename T>
  std::int64_t compare();

  Bench bench_;
  Communicator& group_;
  Collective operation_;
  std::int64_t elements_ = 0;  ///< of the whole
  std::int64_t part_ = 0;      ///< of one rank, where the operation has parts
  DeviceBuffer from_;
  DeviceBuffer to_;
  std::vector<std::int64_t> part_bytes_;
  std::vector<std::int64_t> part_offsets_;
};

}  // namespace hydraulis
