#include "costmodel/presets/clusters.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"

namespace hydraulis::detail {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr int kDevicesPerNode = 8;
constexpr int kMostDevices = 1024;

/// Latency of one ring step: NCCL's own tuning table (ring, Simple protocol), a prior and not a
/// measurement.
constexpr double kIntraLatency = 3.4e-6;
constexpr double kInterLatency = 14e-6;
/// Of starting a copy to or from the host: assumed.
constexpr double kHostLatency = 10e-6;

/// What a DGX node has beside its devices, by its data sheet and those of its processors. A device
/// has 16 lanes of PCI Express to it; copies run below what the lanes carry.
struct HostPreset {
  double memory_gigabytes_per_second;
  double lanes_gigabytes_per_second;  ///< one direction
  const char* what;
};
constexpr HostPreset kDgxA100{409.6, 31.5, "DGX A100: PCIe 4.0 x16, 16 channels of DDR4-3200"};
constexpr HostPreset kDgxH100{614.4, 63, "DGX H100: PCIe 5.0 x16, 16 channels of DDR5-4800"};
constexpr double kHostMemoryGib = 2e12 / kGiB;

struct DevicePreset {
  const char* name;
  double memory_gib;
  double teraflops;
  double memory_gigabytes_per_second;
  double nvlink_gigabytes_per_second;  ///< one direction
  double network_gigabits_per_second;  ///< one direction, per device
  const char* network_origin;
  const HostPreset& host;
};

/// NVIDIA's data sheets (bf16 dense, SXM form; half of the NVLink total, which counts both ways).
constexpr DevicePreset kDevices[] = {
    {"a800", 80, 312, 2039, 200, 200, "assumed: the published runs do not state it", kDgxA100},
    {"a100", 80, 312, 2039, 300, 200, "DGX A100 data sheet", kDgxA100},
    {"h100", 80, 989, 3350, 450, 400, "DGX H100 data sheet", kDgxH100},
    {"h20", 96, 148, 4000, 450, 400, "assumed: as in a DGX H100", kDgxH100},
    {"h200", 141, 989, 4800, 450, 400, "DGX H200 data sheet", kDgxH100},
};

}  // namespace

std::optional<ClusterSpec> cluster_preset(const std::string& name) {
  const auto dash = name.rfind('-');
  if (dash == std::string::npos) return std::nullopt;
  const DevicePreset* preset = nullptr;
  for (const DevicePreset& candidate : kDevices) {
    if (name.compare(0, dash, candidate.name) == 0) preset = &candidate;
  }
  if (preset == nullptr) return std::nullopt;
  int devices = 0;
  const char* end = name.data() + name.size();
  const auto [at, status] = std::from_chars(name.data() + dash + 1, end, devices);
  const bool whole_nodes = devices % kDevicesPerNode == 0;
  if (status != std::errc() || at != end || devices < 1 || devices > kMostDevices ||
      (devices > kDevicesPerNode && !whole_nodes)) {
    throw InputError(
        "cluster '{}': expected {}-N with N a multiple of {} up to {}, or fewer than "
        "{} devices in one node",
        name, preset->name, kDevicesPerNode, kMostDevices, kDevicesPerNode);
  }
  ClusterSpec cluster;
  cluster.name = name;
  cluster.device.name = preset->name;
  cluster.device.memory_bytes = preset->memory_gib * kGiB;
  cluster.device.peak_flops = preset->teraflops * 1e12;
  cluster.device.memory_bandwidth_bytes_per_second = preset->memory_gigabytes_per_second * 1e9;
  cluster.devices_per_node = devices < kDevicesPerNode ? devices : kDevicesPerNode;
  cluster.nodes = devices / cluster.devices_per_node;
  cluster.intra_node = {preset->nvlink_gigabytes_per_second * 1e9, kIntraLatency};
  cluster.inter_node = {preset->network_gigabits_per_second * 1e9 / 8, kInterLatency};
  const HostPreset& host = preset->host;
  cluster.host = {{host.lanes_gigabytes_per_second * 1e9, kHostLatency},
                  kHostMemoryGib * kGiB,
                  host.memory_gigabytes_per_second * 1e9};
  cluster.origin = "data sheet";
  cluster.notes = {
      fmt::format("device: {:g} GiB, {:g} TFLOP/s bf16, {:g} GB/s memory (data sheet)",
                  preset->memory_gib, preset->teraflops, preset->memory_gigabytes_per_second),
      fmt::format("intra-node: {:g} GB/s per device and direction (data sheet)",
                  preset->nvlink_gigabytes_per_second),
      fmt::format("inter-node: {:g} Gb/s = {:g} GB/s per device and direction ({})",
                  preset->network_gigabits_per_second, preset->network_gigabits_per_second / 8,
                  preset->network_origin),
      fmt::format("latencies: {:g} and {:g} microseconds (NCCL's tuning table, not measured)",
                  kIntraLatency * 1e6, kInterLatency * 1e6),
      fmt::format("host: {:g} GB/s per device and direction, {:g} GB/s of memory a node ({}; data "
                  "sheets), 2 TB of it",
                  host.lanes_gigabytes_per_second, host.memory_gigabytes_per_second, host.what),
  };
  return cluster;
}

std::string cluster_preset_names() {
  std::string names;
  for (const DevicePreset& device : kDevices) {
    if (!names.empty()) names += ", ";
    names += fmt::format("{}-N", device.name);
  }
  return names + " (N devices, 8 a node)";
}

}  // namespace hydraulis::detail
