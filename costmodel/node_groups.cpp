#include "costmodel/node_groups.h"

#include <algorithm>

#include "base/error.h"

namespace hydraulis {

int group_count(const ClusterSpec& cluster) {
  return std::max(1, static_cast<int>(cluster.groups.size()));
}

NodeGroup node_group(const ClusterSpec& cluster, int group) {
  if (group < 0 || group >= group_count(cluster)) {
    throw InputError("cluster '{}': has {} groups of nodes, no group {}", cluster.name,
                     group_count(cluster), group);
  }
  if (cluster.groups.empty()) return {cluster.nodes, cluster.device, 1};
  return cluster.groups[static_cast<std::size_t>(group)];
}

int first_node(const ClusterSpec& cluster, int group) {
  int node = 0;
  for (int g = 0; g < group; ++g) node += node_group(cluster, g).nodes;
  return node;
}

int group_devices(const ClusterSpec& cluster, int group) {
  return node_group(cluster, group).nodes * cluster.devices_per_node;
}

double mean_peak_flops(const ClusterSpec& cluster) {
  if (cluster.groups.empty()) return cluster.device.peak_flops;
  double sum = 0;
  for (const NodeGroup& group : cluster.groups) sum += group.nodes * group.device.peak_flops;
  return sum / cluster.nodes;
}

}  // namespace hydraulis
