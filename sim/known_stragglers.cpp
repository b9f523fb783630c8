#include "sim/known_stragglers.h"

#include <algorithm>

#include "costmodel/node_groups.h"

namespace hydraulis {

ClusterSpec with_known_stragglers(const ClusterSpec& cluster, Variance& variance) {
  Variance permanent = variance;
  std::erase_if(permanent.stragglers, [](const Slowdown& slow) { return !slow.permanent(); });
  std::vector<double> slowdowns;
  for (int device = 0; device < cluster.devices(); ++device) {
    if (device % cluster.devices_per_node == 0) slowdowns.push_back(1);
    slowdowns.back() = std::max(slowdowns.back(),
                                compute_slowdown(permanent, device, cluster.devices_per_node, 0));
  }
  if (std::ranges::all_of(slowdowns, [](double slow) { return slow == 1; })) return cluster;

  ClusterSpec known = cluster;
  known.groups.clear();
  variance.contained.clear();
  int node = 0;
  for (int g = 0; g < group_count(cluster); ++g) {
    const NodeGroup group = node_group(cluster, g);
    for (const int end = node + group.nodes; node < end;) {
      const double slow = slowdowns[static_cast<std::size_t>(node)];
      NodeGroup part = group;
      part.nodes = 0;
      part.relative_speed = group.relative_speed / slow;
      for (; node < end && slowdowns[static_cast<std::size_t>(node)] == slow; ++node) ++part.nodes;
      known.groups.push_back(part);
      variance.contained.push_back(slow);
    }
  }
  return known;
}

}  // namespace hydraulis
