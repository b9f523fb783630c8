#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "planner/packing.h"
#include "traces/sampler.h"

namespace hydraulis {

/// A single batch given as a list of lengths. Ids number the sequences with tokens in file order,
/// after the policy for long ones has dropped or split what it does.
struct OneBatch {
  std::vector<Sequence> sequences;
  std::uint64_t empty = 0;    ///< of length 0, left out
  std::uint64_t dropped = 0;  ///< by the drop policy
  OverContextCounts counts;
};

/// Reads the lengths of a file (`format` as load_trace() has it) and applies the policy for
/// sequences over `context`. Throws InputError naming position, length and context under the policy
/// `error`, and for an empty list.
OneBatch load_one_batch(const std::filesystem::path& path, std::uint64_t context,
                        OverContext policy, const std::string& format = "");

}  // namespace hydraulis
