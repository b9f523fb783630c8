#include "costmodel/cluster_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "costmodel/presets/clusters.h"

namespace hydraulis {
namespace {

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;
constexpr double kMicro = 1e-6;
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr int kMostNodes = 1 << 17;
constexpr int kMostDevicesPerNode = 1 << 10;
constexpr int kMostDevices = 1 << 20;
constexpr int kMostCores = 1 << 16;
/// The fastest network card sold for one device today carries 800 Gb/s.
constexpr double kFastestNetworkPerDevice = 100 * kGiga;

/// No figure of real hardware, in the units of the file, is outside; beyond, times would not be
/// finite.
constexpr double kLeastFigure = 1e-6;
constexpr double kMostFigure = 1e9;

double in_range(JsonFields& fields, const std::string& field, double value, double least) {
  if (value < least || value > kMostFigure) {
    throw InputError("{} is {}, expected {:g} to {:g}", fields.name(field), value, least,
                     kMostFigure);
  }
  return value;
}

double positive(JsonFields& fields, const std::string& field) {
  return in_range(fields, field, fields.positive(field), kLeastFigure);
}

double latency(JsonFields& fields) {
  const std::string field = "latency_microseconds";
  return in_range(fields, field, fields.number_or(field, 0), 0) * kMicro;
}

constexpr const char* kInBytes = "bandwidth_gigabytes_per_second";
constexpr const char* kInBits = "bandwidth_gigabits_per_second";

/// Bytes per second, given in exactly one of the two units.
double bandwidth(JsonFields& fields, const std::string& where, const std::string& path) {
  const bool in_bytes = fields.has(kInBytes);
  const bool in_bits = fields.has(kInBits);
  if (in_bytes == in_bits) {
    throw InputError("{}: field '{}' has {}, expected exactly one of {} and {}", where, path,
                     in_bytes ? "both bandwidths" : "no bandwidth", kInBytes, kInBits);
  }
  return in_bytes ? positive(fields, kInBytes) * kGiga : positive(fields, kInBits) * kGiga / 8;
}

LinkSpec parse_link(const Json& json, const std::string& where, const std::string& path) {
  JsonFields fields(json, where, path);
  LinkSpec link;
  link.bandwidth_bytes_per_second = bandwidth(fields, where, path);
  link.latency_seconds = latency(fields);
  fields.finish();
  return link;
}

DeviceSpec parse_device(const Json& json, const std::string& where, const std::string& path) {
  JsonFields fields(json, where, path);
  DeviceSpec device;
  device.name = fields.text("name");
  device.memory_bytes = positive(fields, "memory_gib") * kGiB;
  device.peak_flops = positive(fields, "peak_bf16_teraflops") * kTera;
  device.memory_bandwidth_bytes_per_second =
      positive(fields, "memory_bandwidth_gigabytes_per_second") * kGiga;
  if (fields.has("reserved_gib")) {
    device.reserved_bytes = fields.number("reserved_gib") * kGiB;
    if (device.reserved_bytes < 0 || device.reserved_bytes >= device.memory_bytes) {
      throw InputError("{}: {}, expected 0 or more and less than memory_gib",
                       fields.name("reserved_gib"), device.reserved_bytes / kGiB);
    }
  }
  fields.finish();
  return device;
}

HostSpec parse_host(const Json& json, const std::string& where) {
  JsonFields fields(json, where, "host");
  HostSpec host;
  host.link = parse_link(fields.at("link"), where, "host.link");
  host.memory_bandwidth_bytes_per_second =
      positive(fields, "memory_bandwidth_gigabytes_per_second") * kGiga;
  if (fields.has("memory_gib")) host.memory_bytes = positive(fields, "memory_gib") * kGiB;
  fields.finish();
  return host;
}

void parse_network_cards(const Json& json, const std::string& where, ClusterSpec& cluster) {
  const std::string path = "network_cards";
  JsonFields fields(json, where, path);
  cluster.network_cards_per_node = static_cast<int>(
      fields.integer_or("per_node", cluster.devices_per_node, 1, cluster.devices_per_node));
  if (fields.has(kInBytes) || fields.has(kInBits)) {
    cluster.network_card_bytes_per_second = bandwidth(fields, where, path);
  }
  cluster.rails = fields.boolean_or("rails", false);
  fields.finish();
}

double parse_node_inside(const Json& json, const std::string& where) {
  const std::string path = "node_inside";
  JsonFields fields(json, where, path);
  const double bytes_per_second = bandwidth(fields, where, path);
  fields.finish();
  return bytes_per_second;
}

std::vector<NodeGroup> parse_groups(const Json& json, const std::string& where) {
  if (!json.is_array() || json.empty()) {
    throw InputError("{}: field 'groups' is not a list of at least one group of nodes", where);
  }
  std::vector<NodeGroup> groups;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string path = fmt::format("groups[{}]", i);
    JsonFields fields(json[i], where, path);
    NodeGroup group;
    group.nodes = static_cast<int>(fields.integer("nodes", 1, kMostNodes));
    group.device = parse_device(fields.at("device"), where, path + ".device");
    const double peak = groups.empty() ? group.device.peak_flops : groups[0].device.peak_flops;
    group.relative_speed = group.device.peak_flops / peak;
    if (fields.has("relative_speed")) group.relative_speed = positive(fields, "relative_speed");
    fields.finish();
    groups.push_back(group);
  }
  return groups;
}

/// Nodes and device of a cluster, of one kind or in groups.
void parse_nodes(JsonFields& fields, const std::string& where, ClusterSpec& cluster) {
  if (!fields.has("groups")) {
    cluster.nodes = static_cast<int>(fields.integer("nodes", 1, kMostNodes));
    cluster.device = parse_device(fields.at("device"), where, "device");
    return;
  }
  cluster.groups = parse_groups(fields.at("groups"), where);
  std::int64_t nodes = 0;
  for (const NodeGroup& group : cluster.groups) nodes += group.nodes;
  if (nodes > kMostNodes) {
    throw InputError("{}: field 'groups' has {} nodes in all, expected at most {}", where, nodes,
                     kMostNodes);
  }
  cluster.nodes = static_cast<int>(nodes);
  cluster.device = cluster.groups.front().device;
}

std::vector<TopologyLevel> parse_levels(const Json& json, const std::string& where, int nodes) {
  if (!json.is_array()) throw InputError("{}: field 'levels' is not a list", where);
  std::vector<TopologyLevel> levels;
  int below = 1;
  for (std::size_t i = 0; i < json.size(); ++i) {
    JsonFields fields(json[i], where, fmt::format("levels[{}]", i));
    TopologyLevel level;
    level.name = fields.text("name");
    level.nodes = static_cast<int>(fields.integer("nodes", below, nodes));
    if (level.nodes % below != 0 && level.nodes != nodes) {
      throw InputError("{} is {}; expected a multiple of the {} of the level below",
                       fields.name("nodes"), level.nodes, below);
    }
    const std::string oversubscription = "oversubscription";
    level.oversubscription =
        in_range(fields, oversubscription, fields.number_or(oversubscription, 1), 1);
    level.latency_seconds = latency(fields);
    fields.finish();
    below = level.nodes;
    levels.push_back(level);
  }
  return levels;
}

/// Bandwidths that were probably given in the other unit are kept but said aloud.
void note_suspicious(ClusterSpec& cluster) {
  if (cluster.nodes < 2) return;
  const double inter = cluster.inter_node.bandwidth_bytes_per_second;
  const double intra = cluster.intra_node.bandwidth_bytes_per_second;
  if (inter > kFastestNetworkPerDevice) {
    cluster.warnings.push_back(fmt::format(
        "suspicious: inter_node is {:g} GB/s per device, more than an 800 Gb/s network card; "
        "{:g} Gb/s would be {:g} GB/s (8 times less)",
        inter / kGiga, inter / kGiga, inter / kGiga / 8));
  } else if (inter > intra) {
    cluster.warnings.push_back(fmt::format(
        "suspicious: inter_node ({:g} GB/s per device) is faster than intra_node ({:g} GB/s); "
        "gigabits and gigabytes may have been mixed up",
        inter / kGiga, intra / kGiga));
  }
}

Json device_json(const DeviceSpec& device) {
  Json json;
  json["name"] = device.name;
  json["memory_gib"] = device.memory_bytes / kGiB;
  json["peak_bf16_teraflops"] = device.peak_flops / kTera;
  json["memory_bandwidth_gigabytes_per_second"] = device.memory_bandwidth_bytes_per_second / kGiga;
  if (device.reserved_bytes >= 0) json["reserved_gib"] = device.reserved_bytes / kGiB;
  return json;
}

Json link_json(const LinkSpec& link) {
  Json json;
  json["bandwidth_gigabytes_per_second"] = link.bandwidth_bytes_per_second / kGiga;
  json["latency_microseconds"] = link.latency_seconds / kMicro;
  return json;
}

}  // namespace

ClusterSpec parse_cluster(const Json& json, const std::string& where) {
  JsonFields fields(json, where, "");
  ClusterSpec cluster;
  cluster.name = fields.text_or("name", where);
  cluster.origin = fields.text_or("origin", "file");
  parse_nodes(fields, where, cluster);
  cluster.devices_per_node =
      static_cast<int>(fields.integer("devices_per_node", 1, kMostDevicesPerNode));
  if (std::int64_t{cluster.nodes} * cluster.devices_per_node > kMostDevices) {
    throw InputError("{}: field 'nodes' gives {} devices in all, expected at most {}", where,
                     std::int64_t{cluster.nodes} * cluster.devices_per_node, kMostDevices);
  }
  if (fields.has("cores_per_node")) {
    cluster.cores_per_node = static_cast<int>(fields.integer("cores_per_node", 1, kMostCores));
  }
  cluster.intra_node = parse_link(fields.at("intra_node"), where, "intra_node");
  if (cluster.nodes > 1 || fields.has("inter_node")) {
    cluster.inter_node = parse_link(fields.at("inter_node"), where, "inter_node");
  } else {
    cluster.inter_node = cluster.intra_node;
  }
  if (fields.has("host")) cluster.host = parse_host(fields.at("host"), where);
  if (fields.has("network_cards")) {
    parse_network_cards(fields.at("network_cards"), where, cluster);
  }
  if (fields.has("node_inside")) {
    cluster.node_inside_bytes_per_second = parse_node_inside(fields.at("node_inside"), where);
  }
  if (fields.has("levels")) {
    cluster.levels = parse_levels(fields.at("levels"), where, cluster.nodes);
  }
  if (fields.has("notes")) {
    const Json& notes = fields.at("notes");
    if (!notes.is_array()) throw InputError("{}: field 'notes' is not a list of texts", where);
    for (const Json& note : notes) {
      if (!note.is_string()) throw InputError("{}: field 'notes' is not a list of texts", where);
      cluster.notes.push_back(note.get<std::string>());
    }
  }
  fields.finish();
  note_suspicious(cluster);
  return cluster;
}

ClusterSpec load_cluster(const std::string& preset_or_path) {
  if (auto preset = detail::cluster_preset(preset_or_path)) return *preset;
  std::error_code ec;
  if (!std::filesystem::exists(preset_or_path, ec)) {
    throw InputError("cluster '{}': neither a preset nor a file; presets are {}", preset_or_path,
                     detail::cluster_preset_names());
  }
  return parse_cluster(read_json_file(preset_or_path), preset_or_path);
}

Json cluster_json(const ClusterSpec& cluster) {
  Json json;
  json["name"] = cluster.name;
  json["origin"] = cluster.origin;
  if (cluster.groups.empty()) json["nodes"] = cluster.nodes;
  for (const NodeGroup& group : cluster.groups) {
    json["groups"].push_back({{"nodes", group.nodes},
                              {"device", device_json(group.device)},
                              {"relative_speed", group.relative_speed}});
  }
  json["devices_per_node"] = cluster.devices_per_node;
  if (cluster.cores_per_node > 0) json["cores_per_node"] = cluster.cores_per_node;
  if (cluster.groups.empty()) json["device"] = device_json(cluster.device);
  json["intra_node"] = link_json(cluster.intra_node);
  json["inter_node"] = link_json(cluster.inter_node);
  if (cluster.host.known()) {
    Json& host = json["host"];
    host["link"] = link_json(cluster.host.link);
    if (cluster.host.memory_bytes > 0) host["memory_gib"] = cluster.host.memory_bytes / kGiB;
    host["memory_bandwidth_gigabytes_per_second"] =
        cluster.host.memory_bandwidth_bytes_per_second / kGiga;
  }
  if (cluster.network_cards_per_node > 0) {
    Json& cards = json["network_cards"];
    cards["per_node"] = cluster.network_cards_per_node;
    if (cluster.network_card_bytes_per_second > 0) {
      cards[kInBytes] = cluster.network_card_bytes_per_second / kGiga;
    }
    cards["rails"] = cluster.rails;
  }
  if (cluster.node_inside_bytes_per_second > 0) {
    json["node_inside"][kInBytes] = cluster.node_inside_bytes_per_second / kGiga;
  }
  json["levels"] = Json::array();
  for (const TopologyLevel& level : cluster.levels) {
    Json entry;
    entry["name"] = level.name;
    entry["nodes"] = level.nodes;
    entry["oversubscription"] = level.oversubscription;
    entry["latency_microseconds"] = level.latency_seconds / kMicro;
    json["levels"].push_back(entry);
  }
  json["notes"] = cluster.notes;
  return json;
}

}  // namespace hydraulis
