#include "planner/program/placement.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "base/error.h"
#include "costmodel/node_groups.h"

namespace hydraulis {
namespace {

/// Devices of a node are handed out in ascending order, so how many are used says which.
class Nodes {
 public:
  Nodes(int nodes, int devices_per_node) : per_node_(devices_per_node), used_(nodes, 0) {}

  /// Devices of one tensor-parallel group, or none when no node (or set of empty nodes) has room.
  std::vector<int> take_group(int tp) {
    std::vector<int> group;
    if (tp > per_node_) {
      std::vector<int> empty;
      const int wanted = (tp + per_node_ - 1) / per_node_;
      for (int node = 0; node < count() && static_cast<int>(empty.size()) < wanted; ++node) {
        if (used_[node] == 0) empty.push_back(node);
      }
      if (static_cast<int>(empty.size()) < wanted) return {};
      for (const int node : empty) take(node, std::min(per_node_, tp - size(group)), group);
      return group;
    }
    int best = -1;
    for (int node = 0; node < count(); ++node) {
      const bool fits = per_node_ - used_[node] >= tp;
      if (fits && (best < 0 || used_[node] > used_[best])) best = node;
    }
    if (best >= 0) take(best, tp, group);
    return group;
  }

  int free_devices() const {
    return count() * per_node_ - std::accumulate(used_.begin(), used_.end(), 0);
  }
  int empty_nodes() const { return static_cast<int>(std::count(used_.begin(), used_.end(), 0)); }
  int most_free_in_a_node() const {
    return used_.empty() ? 0 : per_node_ - *std::min_element(used_.begin(), used_.end());
  }

 private:
  int count() const { return static_cast<int>(used_.size()); }
  static int size(const std::vector<int>& group) { return static_cast<int>(group.size()); }
  void take(int node, int devices, std::vector<int>& group) {
    for (int i = 0; i < devices; ++i) group.push_back(node * per_node_ + used_[node]++);
  }

  int per_node_;
  std::vector<int> used_;
};

}  // namespace

Placement place(const std::vector<Scheme>& schemes, int nodes, int devices_per_node) {
  if (nodes < 1 || devices_per_node < 1) {
    throw InputError(
        "placement: a cluster needs at least one node and one device a node, not {}x{}", nodes,
        devices_per_node);
  }
  std::int64_t wanted = 0;
  for (const Scheme& scheme : schemes) {
    if (scheme.cp < 1 || scheme.tp < 1 || scheme.pp < 1) {
      throw InputError("placement: cp, tp and pp must be at least 1, not ({},{},{})", scheme.cp,
                       scheme.tp, scheme.pp);
    }
    wanted += static_cast<std::int64_t>(scheme.cp) * scheme.tp * scheme.pp;
  }
  const std::int64_t available = static_cast<std::int64_t>(nodes) * devices_per_node;
  if (wanted > available) {
    throw InfeasibleError("the strategy needs {} devices, {} more than the cluster's {}", wanted,
                          wanted - available, available);
  }

  std::vector<std::size_t> order(schemes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    return schemes[left].tp > schemes[right].tp;
  });

  Nodes pool(nodes, devices_per_node);
  Placement placement(schemes.size());
  for (const std::size_t pipeline : order) {
    const Scheme& scheme = schemes[pipeline];
    placement[pipeline].resize(scheme.pp);
    for (auto& stage : placement[pipeline]) {
      for (int rank = 0; rank < scheme.cp; ++rank) {
        const std::vector<int> group = pool.take_group(scheme.tp);
        if (group.empty()) {
          throw InfeasibleError(
              "pipeline {} ({},{},{}): a tensor-parallel group of {} devices has no place in nodes "
              "of {} ({} devices are free, at most {} in one node, {} nodes are empty); a smaller "
              "tp, or one that divides the node, fits",
              pipeline, scheme.cp, scheme.tp, scheme.pp, scheme.tp, devices_per_node,
              pool.free_devices(), pool.most_free_in_a_node(), pool.empty_nodes());
        }
        stage.insert(stage.end(), group.begin(), group.end());
      }
    }
  }
  return placement;
}

Placement place(const std::vector<Scheme>& schemes, const ClusterSpec& cluster) {
  if (cluster.groups.empty() &&
      std::ranges::all_of(schemes, [](const Scheme& scheme) { return scheme.group == 0; })) {
    return place(schemes, cluster.nodes, cluster.devices_per_node);
  }
  Placement placement(schemes.size());
  std::vector<std::vector<std::size_t>> members(static_cast<std::size_t>(group_count(cluster)));
  for (std::size_t i = 0; i < schemes.size(); ++i) {
    node_group(cluster, schemes[i].group);  // says which there are
    members[static_cast<std::size_t>(schemes[i].group)].push_back(i);
  }
  for (int group = 0; group < group_count(cluster); ++group) {
    std::vector<Scheme> own;
    for (const std::size_t i : members[static_cast<std::size_t>(group)]) own.push_back(schemes[i]);
    Placement placed = place(own, node_group(cluster, group).nodes, cluster.devices_per_node);
    const int first = first_node(cluster, group) * cluster.devices_per_node;
    for (std::size_t k = 0; k < own.size(); ++k) {
      for (auto& stage : placed[k]) {
        for (int& device : stage) device += first;
      }
      placement[members[static_cast<std::size_t>(group)][k]] = std::move(placed[k]);
    }
  }
  return placement;
}

}  // namespace hydraulis
