#pragma once

#include <span>
#include <vector>

#include "planner/proposal.h"

namespace hydraulis {

/// The dynamic program of ProposalProblem on a cluster of several node groups, whose devices are
/// not interchangeable: a scheme takes devices of its own group (Scheme::group), so that
///
///   F[s][n] = min over scheme k, s' < s, replicas d of
///               F[s'][n - d·g_k of k's group]               (groups but the last)
///               F[s'][n] + d·g_k                            (the last group)
///
/// is the fewest devices of the last group that serve every length up to s within a time with at
/// most n of the others; the least such time is found by bisection to `tolerance`. Lengths are on a
/// grid that grows with them, devices of a group on at most 64 steps.
struct GroupProblem {
  ProposalProblem problem;  ///< schemes of all groups; its own length and device steps unused
  std::vector<int> group_devices;  ///< by group
  double tolerance = 1e-4;         ///< relative
};

/// The best use of all groups' devices for the lengths up to each grid point, shortest first, until
/// one that cannot be served. Intervals name schemes of any group.
std::vector<GridSolution> solve_groups_grid(const GroupProblem& problem);

/// The strategies of those solutions, for the longest first, then one scheme on all devices of a
/// group in all combinations of groups, and two schemes on one group beside the cheapest on the
/// others; without duplicates. Devices that a solution leaves over get further pipelines. Throws
/// InfeasibleError when the context cannot be held.
std::vector<Strategy> propose_over_groups(const GroupProblem& problem);

}  // namespace hydraulis
