#pragma once

#include <vector>

#include "costmodel/cluster_spec.h"
#include "costmodel/scheme.h"

namespace hydraulis {

/// Global device numbers of every stage: `[pipeline][stage]` → devices, tensor-parallel rank
/// fastest, then context-parallel rank.
using Placement = std::vector<std::vector<std::vector<int>>>;

/// Lays pipelines over nodes (published.md 3.10). Pipelines go by descending tp, equal ones as
/// listed. A tensor-parallel group stays in one node, the fullest that still has room; a group
/// larger than a node starts in an empty node and takes as many empty nodes as it needs. The
/// groups of a pipeline may lie in different nodes. Every device is used at most once.
/// Throws InfeasibleError when the pipelines do not fit.
Placement place(const std::vector<Scheme>& schemes, int nodes, int devices_per_node);

/// The same on a cluster, every pipeline on the nodes of its group. Throws InputError for a group
/// that the cluster does not have.
Placement place(const std::vector<Scheme>& schemes, const ClusterSpec& cluster);

}  // namespace hydraulis
