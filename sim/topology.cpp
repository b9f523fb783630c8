#include "sim/topology.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace hydraulis {
namespace {

int groups_of(const Topology& topology, const Topology::Level& level) {
  return (topology.nodes + level.nodes - 1) / level.nodes;
}

int card_of(const Topology& topology, int device) {
  const int place = device % topology.devices_per_node;
  return static_cast<int>(std::int64_t{place} * topology.cards_per_node /
                          topology.devices_per_node);
}

/// Wires up and down of every switch of the levels, from what comes in below.
void add_levels(Topology& topology, const ClusterSpec& cluster, double card_bandwidth,
                double latency_scale) {
  double oversubscription = 1;
  for (std::size_t l = 0; l < cluster.levels.size(); ++l) {
    const TopologyLevel& spec = cluster.levels[l];
    Topology::Level level;
    level.name = spec.name;
    level.nodes = spec.nodes;
    level.first_link = static_cast<std::uint32_t>(topology.links.size());
    level.by_rail = l == 0 && cluster.rails;
    oversubscription *= spec.oversubscription;
    // Up into the switch above, which is the core behind the last level; down into this one.
    const double up =
        l + 1 < cluster.levels.size() ? latency_scale * cluster.levels[l + 1].latency_seconds : 0;
    const double down = latency_scale * spec.latency_seconds;
    for (int group = 0; group < groups_of(topology, level); ++group) {
      const int below = std::min(level.nodes, topology.nodes - group * level.nodes);
      const int cards = level.by_rail ? 1 : topology.cards_per_node;
      const double bandwidth = below * cards * card_bandwidth / oversubscription;
      for (int rail = 0; rail < (level.by_rail ? topology.cards_per_node : 1); ++rail) {
        topology.links.push_back({bandwidth, up});
        topology.links.push_back({bandwidth, down});
      }
    }
    topology.levels.push_back(std::move(level));
  }
}

}  // namespace

Topology make_topology(const ClusterSpec& cluster, double bandwidth_scale, double latency_scale) {
  Topology topology;
  topology.nodes = cluster.nodes;
  topology.devices_per_node = cluster.devices_per_node;
  topology.cards_per_node = cluster.cards_per_node();
  const auto devices = static_cast<std::size_t>(topology.devices());
  const auto nodes = static_cast<std::size_t>(topology.nodes);
  const auto cards = nodes * static_cast<std::size_t>(topology.cards_per_node);
  topology.first_lane = static_cast<std::uint32_t>(2 * devices);
  topology.first_card = static_cast<std::uint32_t>(4 * devices);
  topology.first_inside = static_cast<std::uint32_t>(4 * devices + 2 * cards);
  const double inside = bandwidth_scale * cluster.intra_node.bandwidth_bytes_per_second;
  const double lane = bandwidth_scale * cluster.inter_node.bandwidth_bytes_per_second;
  const double card = bandwidth_scale * cluster.card_bandwidth();
  const double first_switch =
      cluster.levels.empty() ? 0 : latency_scale * cluster.levels.front().latency_seconds;
  auto& links = topology.links;
  links.reserve(4 * devices + 2 * cards + nodes);
  for (std::size_t d = 0; d < devices; ++d) {
    links.push_back({inside, latency_scale * cluster.intra_node.latency_seconds});
    links.push_back({inside, 0});
  }
  for (std::size_t d = 0; d < 2 * devices; ++d) links.push_back({lane, 0});
  for (std::size_t c = 0; c < cards; ++c) {
    links.push_back({card, latency_scale * cluster.inter_node.latency_seconds});
    links.push_back({card, first_switch});
  }
  // Without a limit the ports are the limit.
  const double total = cluster.node_inside_bytes_per_second > 0
                           ? bandwidth_scale * cluster.node_inside_bytes_per_second
                           : topology.devices_per_node * inside;
  for (std::size_t n = 0; n < nodes; ++n) links.push_back({total, 0});
  add_levels(topology, cluster, card, latency_scale);
  return topology;
}

std::uint32_t port_link(const Topology&, int device, bool in) {
  return 2 * static_cast<std::uint32_t>(device) + (in ? 1 : 0);
}

std::uint32_t lane_link(const Topology& topology, int device, bool in) {
  return topology.first_lane + 2 * static_cast<std::uint32_t>(device) + (in ? 1 : 0);
}

std::uint32_t card_link(const Topology& topology, int device, bool in) {
  const int node = device / topology.devices_per_node;
  const auto card =
      static_cast<std::uint32_t>(node * topology.cards_per_node + card_of(topology, device));
  return topology.first_card + 2 * card + (in ? 1 : 0);
}

std::uint32_t inside_link(const Topology& topology, int node) {
  return topology.first_inside + static_cast<std::uint32_t>(node);
}

std::uint32_t switch_of(const Topology& topology, std::size_t level, int device) {
  const Topology::Level& at = topology.levels[level];
  const int group = device / topology.devices_per_node / at.nodes;
  return static_cast<std::uint32_t>(
      at.by_rail ? group * topology.cards_per_node + card_of(topology, device) : group);
}

std::uint32_t switch_link(const Topology& topology, std::size_t level, std::uint32_t at, bool in) {
  return topology.levels[level].first_link + 2 * at + (in ? 1 : 0);
}

std::vector<std::uint32_t> route(const Topology& topology, int source, int destination) {
  for (const int device : {source, destination}) {
    if (device >= 0 && device < topology.devices()) continue;
    throw Error(ExitCode::internal, fmt::format("route: device {}; expected one in [0, {})", device,
                                                topology.devices()));
  }
  if (source == destination) return {};
  const int node = source / topology.devices_per_node;
  if (node == destination / topology.devices_per_node) {
    return {port_link(topology, source, false), inside_link(topology, node),
            port_link(topology, destination, true)};
  }
  std::vector<std::uint32_t> links = {lane_link(topology, source, false),
                                      card_link(topology, source, false)};
  std::vector<std::uint32_t> down;
  for (std::size_t level = 0; level < topology.levels.size(); ++level) {
    const std::uint32_t from = switch_of(topology, level, source);
    const std::uint32_t to = switch_of(topology, level, destination);
    if (from == to) break;
    links.push_back(switch_link(topology, level, from, false));
    down.push_back(switch_link(topology, level, to, true));
  }
  links.insert(links.end(), down.rbegin(), down.rend());
  links.push_back(card_link(topology, destination, true));
  links.push_back(lane_link(topology, destination, true));
  return links;
}

double latency_seconds(const Topology& topology, std::span<const std::uint32_t> route) {
  double seconds = 0;
  for (const std::uint32_t link : route) seconds += topology.links[link].latency_seconds;
  return seconds;
}

}  // namespace hydraulis
