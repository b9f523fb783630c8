#pragma once

#include <string>
#include <vector>

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
};

/// One level of the network above the node, for topologies with oversubscription.
struct TopologyLevel {
  std::string name;             ///< "leaf", "spine"
  int nodes = 0;                ///< nodes below one switch of this level
  double oversubscription = 1;  ///< ≥ 1
  double latency_seconds = 0;
};

struct ClusterSpec {
  std::string name;
  DeviceSpec device;
  int nodes = 0;
  int devices_per_node = 0;
  LinkSpec intra_node;
  LinkSpec inter_node;                ///< per device
  std::vector<TopologyLevel> levels;  ///< may be empty: a flat network
  std::string origin;                 ///< "data sheet", "measured", …

  int devices() const { return nodes * devices_per_node; }
};

/// A preset ("a800-64", "h100-1024", …: a device and any multiple of 8 devices from 8 to 1024, or
/// fewer than 8 in one node) or a JSON file whose field names carry their units. Throws InputError.
ClusterSpec load_cluster(const std::string& preset_or_path);

}  // namespace hydraulis
