#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/packing.h"

// What bounds.cpp and long_bound.cpp share.
namespace hydraulis::detail {

/// Pipelines of one scheme.
struct BoundGroup {
  const PipelineCost* cost = nullptr;
  int count = 0;
  double least_seconds_per_token = 0;
};

/// Distinct lengths with their numbers.
struct LengthCount {
  std::int64_t length = 0;
  double count = 0;
};

/// The multipliers of a bound: what a second of work and a token are worth on a group's pipelines.
struct Prices {
  double work = 0;    ///< α
  double tokens = 0;  ///< β
};

/// An assignment reduced to what the bounds look at.
struct BoundProblem {
  std::vector<BoundGroup> groups;
  std::vector<StageCost> stages;     ///< by group, the stage the bound is proved on
  std::vector<LengthCount> lengths;  ///< ascending
  std::vector<double> seconds;       ///< [group][length]; infinity where it does not fit
  std::vector<double> tokens;        ///< [group][length]
  int items = 0;                     ///< sequences

  BoundProblem(std::span<const PipelineCost> pipelines, std::span<const Sequence> sequences);
  std::size_t cell(std::size_t group, std::size_t length) const {
    return group * lengths.size() + length;
  }
  /// Stages that a micro-batch certainly takes stages[group]'s time on.
  int stage_count(std::size_t group) const {
    return groups[group].cost->uniform_stages() ? groups[group].cost->scheme.pp : 1;
  }
};

/// Raises `known` (a proved bound) by looking at where the longest sequences go, at most to
/// `enough`. `prices` are those that proved `known`.
double long_sequence_bound(const BoundProblem& problem, std::vector<Prices> prices, double known,
                           double enough);

}  // namespace hydraulis::detail
