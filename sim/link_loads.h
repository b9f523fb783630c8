#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "planner/program/program.h"
#include "sim/topology.h"

namespace hydraulis::detail {

/// What a transfer at full speed puts on one resource: a link of the topology, or a pool of links.
struct LinkLoad {
  std::uint32_t resource = 0;
  double bytes_per_second = 0;
};

/// The loads of a stage's transfers, all its devices together, by whether the bytes stay inside
/// nodes. Pools stand for the links through which the owners of a layer serve everybody alike; one
/// has the capacity at which the tightest of them is full.
class LinkLoads {
 public:
  LinkLoads(const Program& program, const Topology& topology);

  /// From a stage's devices to those of another, device by device.
  std::vector<LinkLoad> send(int from, int to, bool across) const;
  /// Parameters of layers [begin, end) from their owners to the stage (`in`), or gradients back.
  std::vector<LinkLoad> reshard(int stage, int begin, int end, bool in, bool across);
  /// Among the devices of a stage, each with every other.
  std::vector<LinkLoad> exchange(int stage, bool across) const;

  /// Seconds that the switches on the way add to the latency of each message between nodes.
  double switch_seconds(int from, int to) const;
  double farthest_switch_seconds() const;

  /// Of links and of the pools asked for so far.
  const std::vector<double>& capacities() const { return capacities_; }
  /// First and one past the last optimizer stage of layers [begin, end): transfers with the same
  /// ones load links alike.
  std::pair<int, int> owner_stages(int begin, int end) const;

 private:
  struct Range {
    int begin;
    int end;
    int size() const { return end - begin; }
  };
  class Sum;

  Range owners(int stage) const;
  double inside() const { return topology_.links[port_link(topology_, 0, true)].bytes_per_second; }
  double between() const { return topology_.links[lane_link(topology_, 0, true)].bytes_per_second; }
  int node_of(int device) const { return device / topology_.devices_per_node; }
  Range node_range(int device) const;
  double below_switch(Range devices, std::size_t level, int device) const;
  std::uint32_t pool(int owners, int what, int at, bool in);
  double pool_capacity(Range owners, int what, int at, bool in) const;
  void own_links(Sum& sum, int device, bool in, bool across) const;
  void ring(Sum& sum, int device, bool across) const;

  const Program& program_;
  const Topology& topology_;
  std::vector<int> owner_of_layer_;  ///< optimizer stage, from the embedding to the head
  std::vector<double> capacities_;
  std::map<std::tuple<int, int, int, bool>, std::uint32_t> pools_;
};

}  // namespace hydraulis::detail
