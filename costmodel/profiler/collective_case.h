#pragma once

#include <cstdint>
#include <vector>

#include "costmodel/operator_profile.h"
#include "costmodel/profiler/bench.h"

namespace hydraulis {

/// The size that is measured for a wanted one: the next that divides evenly over the ranks.
std::int64_t divisible_bytes(std::int64_t wanted, int ranks, DataType type);

/// A collective of one size with its buffers, in as many sets as are asked for, used in turn: what
/// it moves is then in caches no more than in training. All ranks of the group make the calls
/// together.
class CollectiveCase {
 public:
  /// `bytes` as CollectiveSample counts them, divisible. Throws InfeasibleError when the buffers do
  /// not fit into device memory.
  CollectiveCase(const Bench& bench, Communicator& group, Collective operation, std::int64_t bytes,
                 int sets);
  /// Runs it once on known data and compares every value that comes out. Values that differ.
  std::int64_t wrong_values();
  /// Seconds of `times` executions; of a message one way, half of a round trip.
  double run(int times);

 private:
  struct Buffers {
    DeviceBuffer from;
    DeviceBuffer to;
  };
  /// The set whose turn it is.
  const Buffers& next() { return sets_[next_++ % sets_.size()]; }
  void launch(const Buffers& buffers);
  void exchange(int sender, const Buffers& buffers);
  template <typename T>
  std::vector<T> input() const;
  template <typename T>
  std::vector<T> expected() const;
  template <typename T>
  std::int64_t compare();

  Bench bench_;
  Communicator& group_;
  Collective operation_;
  DataType type_;              ///< exact sums: the wide one
  std::int64_t elements_ = 0;  ///< of the whole
  std::int64_t part_ = 0;      ///< of one rank, where the operation has parts
  std::vector<Buffers> sets_;
  std::size_t next_ = 0;
  std::vector<std::int64_t> part_bytes_;
  std::vector<std::int64_t> part_offsets_;
};

}  // namespace hydraulis
