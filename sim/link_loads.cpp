#include "sim/link_loads.h"

#include <algorithm>
#include <limits>

#include "planner/program/reshard.h"

namespace hydraulis::detail {
namespace {

/// What a pool is of: cards (with the lanes to them), the ports of one node, or the wires of a
/// level (counted from here).
constexpr int kCards = 0;
constexpr int kPorts = 1;
constexpr int kLevels = 2;

int overlap(int begin, int end, int other_begin, int other_end) {
  return std::max(0, std::min(end, other_end) - std::max(begin, other_begin));
}

}  // namespace

/// Loads, each resource once.
class LinkLoads::Sum {
 public:
  void add(std::uint32_t resource, double bytes_per_second) {
    if (bytes_per_second > 0) loads_[resource] += bytes_per_second;
  }
  std::vector<LinkLoad> loads() const {
    std::vector<LinkLoad> list;
    for (const auto& [resource, amount] : loads_) list.push_back({resource, amount});
    return list;
  }

 private:
  std::map<std::uint32_t, double> loads_;
};

LinkLoads::LinkLoads(const Program& program, const Topology& topology)
    : program_(program), topology_(topology) {
  for (const TopologyLink& link : topology.links) capacities_.push_back(link.bytes_per_second);
  ModelSpec model;
  model.layers = program.layers;
  for (int layer = kEmbeddingLayer; layer <= program.layers; ++layer) {
    owner_of_layer_.push_back(optimizer_stage(model, program.optimizer, layer));
  }
}

std::pair<int, int> LinkLoads::owner_stages(int begin, int end) const {
  const int last = static_cast<int>(owner_of_layer_.size()) - 1;
  const auto at = [&](int layer) {
    return owner_of_layer_[static_cast<std::size_t>(std::clamp(layer - kEmbeddingLayer, 0, last))];
  };
  const auto [least, most] = std::minmax({at(begin), at(std::max(begin, end - 1))});
  return {least, most + 1};
}

LinkLoads::Range LinkLoads::owners(int stage) const {
  const int each = program_.optimizer.dp * program_.optimizer.tp;
  return {stage * each, (stage + 1) * each};
}

LinkLoads::Range LinkLoads::node_range(int device) const {
  const int begin = node_of(device) * topology_.devices_per_node;
  return {begin, begin + topology_.devices_per_node};
}

/// How many of `devices` hang below the same switch as `device`; on rails those of its node's place
/// stand for all of its card.
double LinkLoads::below_switch(Range devices, std::size_t level, int device) const {
  const Topology::Level& at = topology_.levels[level];
  const int group = at.nodes * topology_.devices_per_node;
  const int begin = device / group * group;
  const double all = overlap(devices.begin, devices.end, begin, begin + group);
  return at.by_rail ? all / topology_.cards_per_node : all;
}

/// The capacity of a pool: what its owners can serve together, each as much as every other, until
/// the first of their links is full.
double LinkLoads::pool_capacity(Range owners, int what, int at, bool in) const {
  double least = std::numeric_limits<double>::infinity();
  if (what == kPorts) {
    const Range node = node_range(at * topology_.devices_per_node);
    owners = {std::max(owners.begin, node.begin), std::min(owners.end, node.end)};
  }
  std::map<std::uint32_t, int> on;  // owners on each link
  for (int owner = owners.begin; owner < owners.end; ++owner) {
    if (what == kPorts) {
      ++on[port_link(topology_, owner, in)];
    } else if (what == kCards) {
      ++on[card_link(topology_, owner, in)];
      ++on[lane_link(topology_, owner, in)];
    } else {
      const auto level = static_cast<std::size_t>(what - kLevels);
      ++on[switch_link(topology_, level, switch_of(topology_, level, owner), in)];
    }
  }
  int all = 0;
  for (const auto& [link, count] : on) all += count;
  if (what == kCards) all /= 2;  // each stands on its card and on its lane
  for (const auto& [link, count] : on) {
    least = std::min(least, topology_.links[link].bytes_per_second * all / count);
  }
  return least;
}

std::uint32_t LinkLoads::pool(int owners, int what, int at, bool in) {
  const auto [found, fresh] =
      pools_.try_emplace({owners, what, at, in}, static_cast<std::uint32_t>(capacities_.size()));
  if (fresh) capacities_.push_back(pool_capacity(this->owners(owners), what, at, in));
  return found->second;
}

void LinkLoads::own_links(Sum& sum, int device, bool in, bool across) const {
  if (across) {
    sum.add(lane_link(topology_, device, in), between());
    sum.add(card_link(topology_, device, in), between());
  } else {
    sum.add(port_link(topology_, device, in), inside());
    sum.add(inside_link(topology_, node_of(device)), inside());
  }
}

std::vector<LinkLoad> LinkLoads::send(int from, int to, bool across) const {
  const std::vector<int>& here = program_.stages[static_cast<std::size_t>(from)].devices;
  const std::vector<int>& there = program_.stages[static_cast<std::size_t>(to)].devices;
  Sum sum;
  if (here.empty() || there.empty()) return {};
  for (std::size_t i = 0; i < std::max(here.size(), there.size()); ++i) {
    const int source = here[i % here.size()];
    const int destination = there[i % there.size()];
    if ((node_of(source) != node_of(destination)) != across) continue;
    for (const std::uint32_t link : route(topology_, source, destination)) {
      sum.add(link, across ? between() : inside());
    }
  }
  return sum.loads();
}

// A ring over all devices, node after node on every card: what goes round comes in and goes out
// everywhere, and leaves a switch from one of its nodes only.
void LinkLoads::ring(Sum& sum, int device, bool across) const {
  own_links(sum, device, true, across);
  if (!across) {
    sum.add(port_link(topology_, device, false), inside());
    return;
  }
  own_links(sum, device, false, across);
  for (std::size_t level = 0; level < topology_.levels.size(); ++level) {
    const int nodes = topology_.levels[level].nodes;
    if (nodes >= topology_.nodes) break;
    const std::uint32_t at = switch_of(topology_, level, device);
    const int first = node_of(device) / nodes * nodes;
    const double share = 1.0 / std::min(nodes, topology_.nodes - first);
    sum.add(switch_link(topology_, level, at, false), share * between());
    sum.add(switch_link(topology_, level, at, true), share * between());
  }
}

std::vector<LinkLoad> LinkLoads::reshard(int stage, int begin, int end, bool in, bool across) {
  Sum sum;
  const auto [first, last] = owner_stages(begin, end);
  const double part = 1.0 / (last - first);  // of the bytes, from each optimizer stage
  for (const int device : program_.stages[static_cast<std::size_t>(stage)].devices) {
    if (program_.sharding == ParameterSharding::sharded) {
      ring(sum, device, across);
      continue;
    }
    own_links(sum, device, in, across);
    const Range node = node_range(device);
    for (int p = first; p < last; ++p) {
      const Range from = owners(p);
      const int near = overlap(from.begin, from.end, node.begin, node.end);
      if (!across) {
        if (near > 0) sum.add(pool(p, kPorts, node_of(device), !in), part * inside());
        continue;
      }
      const double elsewhere = from.size() - near;
      if (elsewhere <= 0) continue;
      sum.add(pool(p, kCards, 0, !in), part * between());
      for (std::size_t level = 0; level < topology_.levels.size(); ++level) {
        const double below =
            std::max(0.0, below_switch(from, level, device) -
                              (topology_.levels[level].by_rail
                                   ? static_cast<double>(near) / topology_.cards_per_node
                                   : near));
        const double share = std::max(0.0, 1 - below / elsewhere);
        const std::uint32_t at = switch_of(topology_, level, device);
        sum.add(switch_link(topology_, level, at, in), part * share * between());
        if (share <= 0) break;
        const int what = kLevels + static_cast<int>(level);
        sum.add(pool(p, what, 0, !in), part * share * between());
      }
    }
  }
  return sum.loads();
}

std::vector<LinkLoad> LinkLoads::exchange(int stage, bool across) const {
  const std::vector<int>& devices = program_.stages[static_cast<std::size_t>(stage)].devices;
  Sum sum;
  for (const int device : devices) {
    own_links(sum, device, true, across);
    if (!across) {
      sum.add(port_link(topology_, device, false), inside());
      continue;
    }
    own_links(sum, device, false, across);
    double elsewhere = 0;
    for (const int other : devices) elsewhere += node_of(other) != node_of(device) ? 1 : 0;
    for (std::size_t level = 0; elsewhere > 0 && level < topology_.levels.size(); ++level) {
      const std::uint32_t at = switch_of(topology_, level, device);
      double above = 0;
      for (const int other : devices) {
        above += node_of(other) != node_of(device) && switch_of(topology_, level, other) != at;
      }
      sum.add(switch_link(topology_, level, at, false), above / elsewhere * between());
      sum.add(switch_link(topology_, level, at, true), above / elsewhere * between());
    }
  }
  return sum.loads();
}

double LinkLoads::switch_seconds(int from, int to) const {
  const std::vector<int>& here = program_.stages[static_cast<std::size_t>(from)].devices;
  const std::vector<int>& there = program_.stages[static_cast<std::size_t>(to)].devices;
  double most = 0;
  for (std::size_t i = 0; i < std::min(here.size(), there.size()); ++i) {
    if (node_of(here[i]) == node_of(there[i])) continue;
    const auto links = route(topology_, here[i], there[i]);
    const double cable = topology_.links[card_link(topology_, here[i], false)].latency_seconds;
    most = std::max(most, hydraulis::latency_seconds(topology_, links) - cable);
  }
  return most;
}

double LinkLoads::farthest_switch_seconds() const {
  if (topology_.nodes < 2) return 0;
  const int last = topology_.devices() - 1;
  const double cable = topology_.links[card_link(topology_, 0, false)].latency_seconds;
  return hydraulis::latency_seconds(topology_, route(topology_, 0, last)) - cable;
}

}  // namespace hydraulis::detail
