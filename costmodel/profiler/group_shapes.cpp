#include "costmodel/profiler/group_shapes.h"

#include <algorithm>
#include <cstddef>
#include <set>

namespace hydraulis {
namespace {

/// Ranks of each node, nodes in the order of their first ranks.
std::vector<std::vector<int>> ranks_by_node(const std::vector<std::string>& hosts) {
  std::vector<std::string> names;
  std::vector<std::vector<int>> nodes;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto found = std::find(names.begin(), names.end(), hosts[rank]);
    const auto node = static_cast<std::size_t>(found - names.begin());
    if (found == names.end()) {
      names.push_back(hosts[rank]);
      nodes.emplace_back();
    }
    nodes[node].push_back(static_cast<int>(rank));
  }
  return nodes;
}

/// 2, 4, … up to `most`, and `most` itself.
std::vector<int> doublings(int most) {
  std::vector<int> sizes;
  for (int size = 2; size < most; size *= 2) sizes.push_back(size);
  if (most >= 2) sizes.push_back(most);
  return sizes;
}

/// Groups that take `per_node` ranks of each of `span` nodes.
GroupShape shape_of(const std::vector<std::vector<int>>& nodes, int span, int per_node) {
  GroupShape shape;
  shape.ranks = span * per_node;
  shape.nodes = span;
  for (std::size_t first = 0; first + span <= nodes.size(); first += span) {
    for (std::size_t begin = 0;; begin += per_node) {
      std::vector<int> group;
      for (std::size_t node = first; node < first + span; ++node) {
        for (std::size_t i = begin; i < begin + per_node && i < nodes[node].size(); ++i) {
          group.push_back(nodes[node][i]);
        }
      }
      if (static_cast<int>(group.size()) < shape.ranks) break;
      shape.groups.push_back(std::move(group));
    }
  }
  return shape;
}

}  // namespace

std::vector<GroupShape> group_shapes(const std::vector<std::string>& hosts) {
  const std::vector<std::vector<int>> nodes = ranks_by_node(hosts);
  std::size_t fewest = hosts.size();
  std::size_t most = 0;
  for (const auto& node : nodes) {
    fewest = std::min(fewest, node.size());
    most = std::max(most, node.size());
  }
  std::vector<GroupShape> shapes;
  for (const int per_node : doublings(static_cast<int>(most))) {
    shapes.push_back(shape_of(nodes, 1, per_node));
  }
  for (const int span : doublings(static_cast<int>(nodes.size()))) {
    shapes.push_back(shape_of(nodes, span, 1));
    if (fewest > 1) shapes.push_back(shape_of(nodes, span, static_cast<int>(fewest)));
  }
  return shapes;
}

int count_nodes(const std::vector<std::string>& hosts) {
  return static_cast<int>(std::set<std::string>(hosts.begin(), hosts.end()).size());
}

}  // namespace hydraulis
