#pragma once

#include <string>
#include <vector>

namespace hydraulis {

/// Groups of one shape, that communicate side by side as the groups of a training job do.
struct GroupShape {
  int ranks = 0;                         ///< in each group
  int nodes = 1;                         ///< that each group spans, evenly
  std::vector<std::vector<int>> groups;  ///< ranks of the world; no rank in two of them
};

/// The shapes of groups that a job's ranks can form: 2, 4, … and all ranks of a node; 2, 4, … and
/// all nodes with one rank of each and with all ranks of each. Empty for one rank. `hosts` names
/// the node of each rank; ranks of a node need not be neighbours.
std::vector<GroupShape> group_shapes(const std::vector<std::string>& hosts);

/// Number of different hosts.
int count_nodes(const std::vector<std::string>& hosts);

}  // namespace hydraulis
