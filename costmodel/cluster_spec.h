#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace hydraulis {

/// A link as one device sees it, one direction.
struct LinkSpec {
  double bandwidth_bytes_per_second = 0;
  double latency_seconds = 0;
};

struct DeviceSpec {
  std::string name;
  double memory_bytes = 0;
  double peak_flops = 0;  ///< bf16 dense, FLOP/s
  double memory_bandwidth_bytes_per_second = 0;
  /// Memory that training cannot use: context, workspace and a margin. Negative: not known, so as
  /// measured on the A800.
  double reserved_bytes = -1;
};

/// The node that devices sit in, as far as it keeps optimizer states for them.
struct HostSpec {
  LinkSpec link;            ///< of a device to its node's memory; bandwidth 0: not known
  double memory_bytes = 0;  ///< of a node; 0: not known
  double memory_bandwidth_bytes_per_second = 0;  ///< of a node, shared by its devices
  bool known() const { return link.bandwidth_bytes_per_second > 0; }
};

/// Nodes of like devices in a cluster of unlike ones (costmodel/node_groups.h).
struct NodeGroup {
  int nodes = 0;
  DeviceSpec device;
  /// How fast its devices compute, as a multiple of those that the profile describes: the ratio of
  /// peak FLOP/s to the first group's unless the file says. A slow node is a group of its own.
  double relative_speed = 1;
};

/// One level of the network above the node, for topologies with oversubscription.
struct TopologyLevel {
  std::string name;             ///< "leaf", "spine"
  int nodes = 0;                ///< nodes below one switch of this level
  double oversubscription = 1;  ///< ≥ 1: what comes in below a switch by what goes out above
  double latency_seconds = 0;   ///< of passing one such switch, on top of inter_node's
};

struct ClusterSpec {
  std::string name;
  DeviceSpec device;
  int nodes = 0;
  int devices_per_node = 0;
  LinkSpec intra_node;
  LinkSpec inter_node;  ///< per device
  /// Devices are processes on the cores of their node: how many cores it has. They compute with
  /// max(1, cores / devices of a node) of them, communicate with the same ones, and share them when
  /// there are more devices than cores. 0: devices compute and communicate on their own.
  int cores_per_node = 0;
  HostSpec host;  ///< what optimizer states in host memory need
  /// Network cards of a node, which its devices use in equal runs; 0: one a device.
  int network_cards_per_node = 0;
  double network_card_bytes_per_second = 0;  ///< of one, one direction; 0: as inter_node
  bool rails = false;  ///< a switch of the first level joins one card of each of its nodes, not all
  double node_inside_bytes_per_second = 0;  ///< of all its devices together; 0: no limit (a switch)
  /// In the order of their nodes, which are those of the cluster; `device` is the first one's.
  /// Empty: all nodes are alike.
  std::vector<NodeGroup> groups;
  std::vector<TopologyLevel> levels;  ///< may be empty: a flat network
  std::string origin;                 ///< "data sheet", "measured", …
  std::vector<std::string> notes;     ///< where each figure comes from; for people
  /// What looks wrong in a file: a bandwidth that is probably in the other unit.
  std::vector<std::string> warnings;

  int devices() const { return nodes * devices_per_node; }
  int cards_per_node() const {
    return network_cards_per_node > 0 ? network_cards_per_node : devices_per_node;
  }
  double card_bandwidth() const {
    return network_card_bytes_per_second > 0 ? network_card_bytes_per_second
                                             : inter_node.bandwidth_bytes_per_second;
  }
};

/// A preset ("a800-64", "h100-1024", …: a device and any multiple of 8 devices from 8 to 1024, or
/// fewer than 8 in one node) or a JSON file whose field names carry their units. Throws InputError.
///
///   {"name": "lab", "origin": "measured", "nodes": 8, "devices_per_node": 8,
///    "device": {"name": "a800", "memory_gib": 80, "peak_bf16_teraflops": 312,
///               "memory_bandwidth_gigabytes_per_second": 2039, "reserved_gib": 10.9},
///    "intra_node": {"bandwidth_gigabytes_per_second": 200, "latency_microseconds": 3.4},
///    "inter_node": {"bandwidth_gigabits_per_second": 200, "latency_microseconds": 14},
///    "host": {"link": {"bandwidth_gigabytes_per_second": 32, "latency_microseconds": 10},
///             "memory_gib": 2048, "memory_bandwidth_gigabytes_per_second": 410},
///    "network_cards": {"per_node": 8, "bandwidth_gigabits_per_second": 200, "rails": true},
///    "node_inside": {"bandwidth_gigabytes_per_second": 64},
///    "levels": [{"name": "leaf", "nodes": 4, "oversubscription": 2, "latency_microseconds": 1}]}
///
/// A cluster of unlike devices lists its nodes as groups, in place of `nodes` and `device`; the
/// profile describes the first group's devices, which `relative_speed` (left out: the ratio of peak
/// FLOP/s) is relative to:
///
///   "groups": [{"nodes": 4, "device": {"name": "a800", …}},
///              {"nodes": 4, "device": {"name": "h100", …}, "relative_speed": 2.2}]
///
/// A link gives its bandwidth, per device and in one direction, in exactly one of the two units;
/// `reserved_gib` is that of the A800 when left out; `inter_node` may be left out for one node,
/// `cores_per_node` (of machines whose devices are processes), `host` (its memory_gib alone too),
/// `levels`, `name`, `origin` and `notes` always. `network_cards` and
/// `node_inside` (what the inside of a node carries in all, where that is less than its devices'
/// links) may be left out too, and each field of network_cards.
ClusterSpec load_cluster(const std::string& preset_or_path);

/// The same from parsed JSON; `where` names the file in errors. Throws InputError.
ClusterSpec parse_cluster(const Json& json, const std::string& where);
/// The JSON form above.
Json cluster_json(const ClusterSpec& cluster);

}  // namespace hydraulis
