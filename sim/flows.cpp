#include "sim/flows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "sim/sharing.h"

namespace hydraulis {
namespace {

void check(std::span<const Flow> flows) {
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

detail::Graph make_graph(std::span<const Flow> flows) {
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

}  // namespace

std::vector<Span> run_flows(std::span<const Flow> flows, const Topology& topology) {
  check(flows);
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
  return detail::run_shared(make_graph(flows), sharing).ran;
}

std::vector<Flow> ring_all_reduce(std::span<const int> devices, double bytes) {
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
