#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "costmodel/cluster_spec.h"

namespace hydraulis {

/// One direction of a wire, or what a node can carry inside.
struct TopologyLink {
  double bytes_per_second = 0;
  /// Of passing it: a port or card out has that of its kind of link, a card in that of the first
  /// switch, a wire up that of the switch above, a wire down that of its own.
  double latency_seconds = 0;
};

/// A cluster's network as links: of every device a port on its node's switch and a lane to its
/// network card, of every node what its inside can carry and its cards, of every switch of every
/// level its wires up and down. Device d of a node uses card ⌊d · cards / devices⌋. On rails a
/// switch of the first level joins one card of each of its nodes, else all of them. The wires up
/// from a switch carry what comes in below, divided by its oversubscription; above the last level
/// everything is joined without loss. Plain data; route() and the functions below read it.
struct Topology {
  struct Level {
    std::string name;
    int nodes = 1;                 ///< below one switch
    std::uint32_t first_link = 0;  ///< wire up of switch 0, its wire down, that up of switch 1, …
    bool by_rail = false;          ///< switches: one for each group of nodes and card
  };
  int nodes = 1;
  int devices_per_node = 1;
  int cards_per_node = 1;
  std::uint32_t first_lane = 0;    ///< ports come first: out and in of device 0, of device 1, …
  std::uint32_t first_card = 0;    ///< out and in of each node's cards
  std::uint32_t first_inside = 0;  ///< one a node
  std::vector<Level> levels;
  std::vector<TopologyLink> links;

  int devices() const { return nodes * devices_per_node; }
};

/// The links of a cluster, what-if scales applied (positive; latency may be 0). A route inside a
/// node has the latency of intra_node, one between nodes that of inter_node and of every switch on
/// the way.
Topology make_topology(const ClusterSpec& cluster, double bandwidth_scale = 1,
                       double latency_scale = 1);

/// Links on the way from one device to another, in order; none from a device to itself. Throws
/// Error (internal) for devices that there are not.
std::vector<std::uint32_t> route(const Topology& topology, int source, int destination);

/// Sum over the links of a route.
double latency_seconds(const Topology& topology, std::span<const std::uint32_t> route);

/// Numbers of single links.
std::uint32_t port_link(const Topology& topology, int device, bool in);
std::uint32_t lane_link(const Topology& topology, int device, bool in);
std::uint32_t card_link(const Topology& topology, int device, bool in);
std::uint32_t inside_link(const Topology& topology, int node);
/// Switch of a level that a device's card hangs below, and its wire up or (`in`) down.
std::uint32_t switch_of(const Topology& topology, std::size_t level, int device);
std::uint32_t switch_link(const Topology& topology, std::size_t level, std::uint32_t at, bool in);

}  // namespace hydraulis
