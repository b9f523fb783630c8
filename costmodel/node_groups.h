#pragma once

#include "costmodel/cluster_spec.h"

namespace hydraulis {

// Clusters whose nodes are not all alike. A pipeline lies within one group (Scheme::group) and
// computes as fast as its devices; links are the cluster's everywhere.

/// At least 1.
int group_count(const ClusterSpec& cluster);
/// The group as described, or the whole cluster. Throws InputError for one it does not have.
NodeGroup node_group(const ClusterSpec& cluster, int group);
/// Number of the group's first node in the cluster.
int first_node(const ClusterSpec& cluster, int group);
/// Devices of the group.
int group_devices(const ClusterSpec& cluster, int group);
/// Peak FLOP/s of a device, mean over all devices.
double mean_peak_flops(const ClusterSpec& cluster);

}  // namespace hydraulis
