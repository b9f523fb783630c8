#pragma once

#include <optional>
#include <span>
#include <vector>

#include "planner/packing.h"

namespace hydraulis {

/// Groups of one degree that the solver may open.
struct GroupKind {
  int size = 1;                 ///< units it takes: devices, or ranks of tp devices
  std::int64_t max_tokens = 0;  ///< of a micro-batch
  StageCost cost;               ///< seconds of a micro-batch, forward and backward
  std::int64_t padded_to = 1;   ///< sequences are padded to a multiple
  std::int64_t padded(std::int64_t length) const {
    return (length + padded_to - 1) / padded_to * padded_to;
  }
};

/// A group and the sequences it trains, by index.
struct SolvedGroup {
  std::size_t kind = 0;
  std::vector<int> sequences;
};

struct GroupSolution {
  std::vector<SolvedGroup> groups;  ///< largest first
  double seconds = 0;               ///< of the slowest, as the solver estimates it
};

/// Opens groups of unequal sizes on `units` and gives each sequence a group so that the slowest
/// group is fast: bisection over that time; longest first, to the smallest open group with room and
/// time left (the fullest of equals), else to a new one of the smallest kind that is in time.
/// `one_micro_batch`: all sequences of a group run at once and share its memory; else one after the
/// other, packed. Kinds ascend in size; sequences descend in length. Bounded by 40 passes over the
/// sequences. Nothing when the sequences do not fit.
std::optional<GroupSolution> solve_groups(std::span<const Sequence> sequences,
                                          std::span<const GroupKind> kinds, int units,
                                          bool one_micro_batch);

}  // namespace hydraulis
