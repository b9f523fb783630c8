// Where the members of a collective sit, and what their messages run over.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
#include "costmodel/collective_cost.h"

namespace hydraulis {
namespace {

/// GB/s that NCCL counts for a link over those of its data sheet.
double nvlink_share(NcclGeneration generation) {
  switch (generation) {
    case NcclGeneration::ampere:
      return 20.0 / 25;
    case NcclGeneration::hopper:
      return 20.6 / 25;
    case NcclGeneration::blackwell:
      return 40.1 / 50;
    default:
      return 1;
  }
}
constexpr double kNetworkShare = 12.0 / 12.5;

NcclGeneration generation_of(std::string_view device) {
  constexpr std::pair<std::string_view, NcclGeneration> kNames[] = {
      {"a100", NcclGeneration::ampere},     {"a800", NcclGeneration::ampere},
      {"h100", NcclGeneration::hopper},     {"h800", NcclGeneration::hopper},
      {"h200", NcclGeneration::hopper},     {"h20", NcclGeneration::hopper},
      {"gh200", NcclGeneration::hopper},    {"b100", NcclGeneration::blackwell},
      {"b200", NcclGeneration::blackwell},  {"b300", NcclGeneration::blackwell},
      {"gb200", NcclGeneration::blackwell}, {"gb300", NcclGeneration::blackwell}};
  for (const auto& [name, generation] : kNames) {
    // "a100-40gb" and "a100" are of one kind, "a1000" is not.
    const bool whole =
        device.size() == name.size() ||
        (device.size() > name.size() && (device[name.size()] == '-' || device[name.size()] == '_'));
    if (whole && device.substr(0, name.size()) == name) return generation;
  }
  return NcclGeneration::none;
}

}  // namespace

GroupPlacement group_placement(std::span<const int> devices, int devices_per_node,
                               int cards_per_node) {
  if (devices.empty() || devices_per_node < 1) {
    throw InputError("collective: a group of {} devices on nodes of {}, expected at least one each",
                     devices.size(), devices_per_node);
  }
  std::vector<int> members(devices.begin(), devices.end());
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  if (members.front() < 0) {
    throw InputError("collective: device {}, expected a number of 0 or more", members.front());
  }
  GroupPlacement placement;
  placement.members = static_cast<int>(members.size());
  placement.nodes = 0;
  placement.fewest_in_node = placement.members;
  placement.fewest_cards = placement.members;
  const int cards = cards_per_node > 0 ? cards_per_node : devices_per_node;
  const auto card_of = [&](int device) {
    return std::int64_t{device % devices_per_node} * cards / devices_per_node;
  };
  for (std::size_t first = 0; first < members.size(); ++placement.nodes) {
    const int node = members[first] / devices_per_node;
    std::size_t last = first;
    int used = 0;
    for (; last < members.size() && members[last] / devices_per_node == node; ++last) {
      if (last == first || card_of(members[last]) != card_of(members[last - 1])) ++used;
    }
    placement.fewest_cards = std::min(placement.fewest_cards, used);
    const int count = static_cast<int>(last - first);
    placement.fewest_in_node = std::min(placement.fewest_in_node, count);
    placement.most_in_node = std::max(placement.most_in_node, count);
    first = last;
  }
  return placement;
}

GroupPlacement even_placement(int members, int nodes) {
  const int used = std::max(1, std::min(nodes, members));
  return {members, used, members / used, (members + used - 1) / used, members / used};
}

CollectiveNetwork collective_network(const ClusterSpec& cluster, double latency_scale,
                                     double bandwidth_scale) {
  CollectiveNetwork network{cluster.intra_node,       cluster.inter_node,
                            cluster.card_bandwidth(), cluster.cards_per_node(),
                            NcclGeneration::none,     latency_scale};
  if (cluster.cores_per_node == 0) network.generation = generation_of(cluster.device.name);
  const bool shares = network.generation != NcclGeneration::none && cluster.origin != "measured";
  network.inside.bandwidth_bytes_per_second *=
      bandwidth_scale * (shares ? nvlink_share(network.generation) : 1);
  const double far = bandwidth_scale * (shares ? kNetworkShare : 1);
  network.between.bandwidth_bytes_per_second *= far;
  network.card_bytes_per_second *= far;
  network.inside.latency_seconds *= latency_scale;
  network.between.latency_seconds *= latency_scale;
  return network;
}

const char* to_string(NcclGeneration generation) {
  constexpr const char* kNames[] = {"none", "Ampere", "Hopper", "Blackwell"};
  return kNames[static_cast<std::size_t>(generation)];
}

}  // namespace hydraulis
