#pragma once

#include "planner/policies/group_solver.h"
#include "planner/policies/own_groups.h"

namespace hydraulis {

/// Ranks of one tensor-parallel degree without pipelines, joined by context parallelism into groups
/// of the given sizes: the devices of a system whose groups change while its parameters stay.
struct RingRanks {
  CostModel model;  ///< knows the groups' schemes alone; optimizer layout over all ranks
  int tp = 1;
  int ranks = 0;
  std::vector<Scheme> schemes;   ///< ascending
  std::vector<GroupKind> kinds;  ///< of the schemes
};

/// One for every tensor-parallel degree that some group of all ranks holds the context with; only
/// powers of two as group sizes, or any. `longest`: tokens that the roomiest holds. Throws
/// InfeasibleError when none holds the context, naming the longest that fits.
std::vector<RingRanks> ring_ranks(const PolicySetup& setup, bool powers_of_two);

/// The groups as pipelines of one phase, their sequences packed for time (or one micro-batch each
/// where they are few), and a pipeline without work for each rank that is left.
void add_groups(BatchPlan& plan, const RingRanks& ranks, std::span<const Sequence> sequences,
                std::span<const SolvedGroup> groups, int phase, PipelineCostTable& costs);

}  // namespace hydraulis
