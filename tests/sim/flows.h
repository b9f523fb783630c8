#pragma once

// Flows between single devices over every link of a topology, unfolded: what the simulator's folded
// stages are held against.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "sim/replay.h"
#include "sim/sharing.h"
#include "sim/topology.h"

namespace hydraulis {

/// "node 3, card 1, out", for people.
inline std::string link_name(const Topology& topology, std::uint32_t link) {
  const auto way = [](std::uint32_t number) { return number % 2 == 0 ? "out" : "in"; };
  if (link < topology.first_lane) return fmt::format("device {}, port {}", link / 2, way(link));
  if (link < topology.first_card) {
    const std::uint32_t number = link - topology.first_lane;
    return fmt::format("device {}, lane to its card, {}", number / 2, way(number));
  }
  if (link < topology.first_inside) {
    const std::uint32_t number = link - topology.first_card;
    const auto cards = static_cast<std::uint32_t>(topology.cards_per_node);
    return fmt::format("node {}, card {}, {}", number / 2 / cards, number / 2 % cards, way(number));
  }
  std::string name = fmt::format("node {}, inside", link - topology.first_inside);
  for (const Topology::Level& level : topology.levels) {
    if (link < level.first_link) break;
    const std::uint32_t number = link - level.first_link;
    name = fmt::format("{} {}, {}", level.name, number / 2, number % 2 == 0 ? "up" : "down");
  }
  return name;
}

/// Bytes from one device to another, once the flows that it comes after have arrived.
struct Flow {
  int source = 0;
  int destination = 0;
  double bytes = 0;
  std::vector<int> after;  ///< indices of earlier flows
};

inline void check_flows(std::span<const Flow> flows) {
  for (std::size_t i = 0; i < flows.size(); ++i) {
    if (!(flows[i].bytes >= 0) || !std::isfinite(flows[i].bytes)) {
      throw Error(ExitCode::internal, fmt::format("flow {}: {} bytes; expected a finite number of "
                                                  "at least 0",
                                                  i, flows[i].bytes));
    }
    for (const int earlier : flows[i].after) {
      if (earlier >= 0 && static_cast<std::size_t>(earlier) < i) continue;
      throw Error(ExitCode::internal,
                  fmt::format("flow {}: comes after flow {}; expected an earlier one", i, earlier));
    }
  }
}

inline detail::Graph graph_of(std::span<const Flow> flows) {
  detail::Graph graph;
  graph.waits.resize(flows.size());
  graph.seconds.resize(flows.size());
  graph.first_successor.resize(flows.size() + 1);
  for (std::size_t i = 0; i < flows.size(); ++i) {
    graph.waits[i] = static_cast<std::uint32_t>(flows[i].after.size());
    for (const int earlier : flows[i].after) ++graph.first_successor[earlier + 1];
  }
  for (std::size_t i = 0; i < flows.size(); ++i) {
    graph.first_successor[i + 1] += graph.first_successor[i];
  }
  graph.successors.resize(graph.first_successor.back());
  std::vector<std::uint32_t> next(graph.first_successor.begin(), graph.first_successor.end() - 1);
  for (std::size_t i = 0; i < flows.size(); ++i) {
    for (const int earlier : flows[i].after) {
      graph.successors[next[earlier]++] = static_cast<std::uint32_t>(i);
    }
  }
  return graph;
}

/// When each flow ran: the latency of its route, then its bytes at most as fast as the slowest link
/// of the route; flows share links max-min fairly. Throws Error (internal) for devices that the
/// topology does not have, negative or not finite bytes and flows that come after later ones.
inline std::vector<Span> run_flows(std::span<const Flow> flows, const Topology& topology) {
  check_flows(flows);
  detail::Sharing sharing;
  for (const TopologyLink& link : topology.links) {
    sharing.capacities.push_back(link.bytes_per_second);
  }
  detail::KindTable kinds(sharing);
  for (const Flow& flow : flows) {
    const std::vector<std::uint32_t> links = route(topology, flow.source, flow.destination);
    double speed = std::numeric_limits<double>::infinity();
    for (const std::uint32_t link : links) speed = std::min(speed, sharing.capacities[link]);
    std::vector<ResourceUse> uses;
    uses.reserve(links.size());
    for (const std::uint32_t link : links) uses.push_back({link, speed});
    const double latency = latency_seconds(topology, links);
    if (latency > 0) sharing.parts.push_back({detail::kAlone, latency});
    if (!links.empty() && flow.bytes > 0) {
      sharing.parts.push_back({kinds.kind_of(uses), flow.bytes / speed});
    }
    sharing.first_part.push_back(static_cast<std::uint32_t>(sharing.parts.size()));
  }
  return detail::run_shared(graph_of(flows), sharing).ran;
}

/// All-reduce of `bytes` as a ring through the devices in the order given: in each of 2(n − 1)
/// steps every device sends bytes/n to the next one, once it has what came to it in the step
/// before.
inline std::vector<Flow> ring_all_reduce(std::span<const int> devices, double bytes) {
  const auto members = static_cast<int>(devices.size());
  std::vector<Flow> flows;
  for (int step = 0; step < 2 * (members - 1); ++step) {
    for (int i = 0; i < members; ++i) {
      Flow& flow = flows.emplace_back();
      flow.source = devices[static_cast<std::size_t>(i)];
      flow.destination = devices[static_cast<std::size_t>((i + 1) % members)];
      flow.bytes = bytes / members;
      if (step > 0) flow.after.push_back((step - 1) * members + (i + members - 1) % members);
    }
  }
  return flows;
}

}  // namespace hydraulis
