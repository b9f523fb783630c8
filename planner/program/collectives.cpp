#include "planner/program/collectives.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace hydraulis {

ReshardSummary all_gather_traffic(double bytes, const ClusterSpec& cluster, int times) {
  const double devices = cluster.devices();
  const double nodes = cluster.nodes;
  ReshardSummary traffic;
  traffic.intra_node_bytes = std::llround(bytes * (devices - 1) / devices);
  double steps = devices - 1;
  if (cluster.nodes > 1) {
    traffic.inter_node_bytes = std::llround(bytes * (nodes - 1) / nodes / cluster.devices_per_node);
    const double far = cluster.inter_node.latency_seconds;
    const double near = cluster.intra_node.latency_seconds;
    steps = nodes - 1 + (far > 0 ? (devices - nodes) * near / far : 0);
  }
  traffic.messages = static_cast<int>(std::lround(steps * times));
  return traffic;
}

ReshardSummary all_to_all_traffic(double bytes, std::span<const int> devices, int devices_per_node,
                                  int times) {
  std::map<int, int> in_node;
  for (const int device : devices) ++in_node[device / devices_per_node];
  int fewest = static_cast<int>(devices.size());
  for (const auto& [node, count] : in_node) fewest = std::min(fewest, count);
  const auto members = static_cast<double>(devices.size());
  ReshardSummary traffic;
  traffic.intra_node_bytes = std::llround(times * bytes * (fewest - 1) / members);
  traffic.inter_node_bytes = std::llround(times * bytes * (members - fewest) / members);
  traffic.messages = times * (static_cast<int>(devices.size()) - 1);
  return traffic;
}

double traffic_seconds(const ReshardSummary& traffic, const ClusterSpec& cluster) {
  const bool crosses = traffic.inter_node_bytes > 0;
  const LinkSpec& slowest = crosses ? cluster.inter_node : cluster.intra_node;
  double seconds = traffic.messages * slowest.latency_seconds;
  if (traffic.intra_node_bytes > 0) {
    seconds += static_cast<double>(traffic.intra_node_bytes) /
               cluster.intra_node.bandwidth_bytes_per_second;
  }
  if (crosses) {
    seconds += static_cast<double>(traffic.inter_node_bytes) /
               cluster.inter_node.bandwidth_bytes_per_second;
  }
  return seconds;
}

}  // namespace hydraulis
