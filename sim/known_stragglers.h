#pragma once

#include "costmodel/cluster_spec.h"
#include "sim/variance.h"

namespace hydraulis {

/// The cluster as a planner sees it that knows which nodes are slow for good: runs of nodes of one
/// speed are groups (costmodel/node_groups.h), and a node is as slow as its slowest device. The
/// variance learns that the cost model of that cluster contains those slowdowns
/// (Variance::contained), so that it simulates as before. Unchanged when nobody is slow for good.
ClusterSpec with_known_stragglers(const ClusterSpec& cluster, Variance& variance);

}  // namespace hydraulis
