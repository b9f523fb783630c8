#include "costmodel/host_states.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

}  // namespace

double host_state_bytes(double elements) {
  // Two buckets of gradients on their way down, two of rounded parameters on their way up.
  const double bucket = std::min(elements, static_cast<double>(kHostBucketElements));
  return kHostStatesBytes * elements + 2 * kHostStatesDeviceBytes * bucket;
}

double owned_elements(const CostModel& model) {
  return std::ceil(static_cast<double>(parameter_count(model.model)) /
                   std::max(1, model.optimizer.devices()));
}

double host_step_seconds(const ClusterSpec& cluster, double elements) {
  const HostSpec& host = cluster.host;
  if (!host.known() || elements <= 0) return 0;
  const double buckets = std::ceil(elements / static_cast<double>(kHostBucketElements));
  const double bucket = elements / buckets;
  const auto copy = [&](double bytes) {
    return host.link.latency_seconds + bytes * bucket / host.link.bandwidth_bytes_per_second;
  };
  const double down = copy(4);
  const double up = copy(2);
  const double update =
      kHostUpdateBytes * bucket * cluster.devices_per_node / host.memory_bandwidth_bytes_per_second;
  return down + update + up + (buckets - 1) * std::max({down, update, up});
}

std::string host_step_text(const ClusterSpec& cluster) {
  const HostSpec& host = cluster.host;
  if (!host.known()) {
    return fmt::format(
        "optimizer step: on the hosts; cluster '{}' does not describe them (field 'host'), so its "
        "copies and updates count no time",
        cluster.name);
  }
  return fmt::format(
      "optimizer step: on the hosts, copies (host link {:.4g} GB/s and {:.3g} us a device) and "
      "updates ({:.4g} GB/s of memory a node) of {} MiB of gradients beside those of the next",
      host.link.bandwidth_bytes_per_second / 1e9, 1e6 * host.link.latency_seconds,
      host.memory_bandwidth_bytes_per_second / 1e9, 4 * kHostBucketElements >> 20);
}

void keep_states_on_host(CostModel& model) {
  const ClusterSpec& cluster = model.cluster;
  if (cluster.cores_per_node > 0) {
    throw InputError(
        "cluster '{}': its devices are processes on the cores of their node, whose memory is the "
        "host's already: optimizer states stay on the device",
        cluster.name);
  }
  if (!cluster.host.known()) {
    throw InputError(
        "cluster '{}': field 'host' is missing: optimizer states in host memory need the bandwidth "
        "of the link to it and of the memory itself",
        cluster.name);
  }
  if (model.memory == MemoryModel::published) {
    throw InputError(
        "the published memory model has optimizer states on the devices; with them in host memory "
        "use the composed one (--memory-model composed)");
  }
  model.states = OptimizerStates::host;
  model.numbers.optimizer = kHostStatesDeviceBytes;
  const double needed = host_state_bytes(owned_elements(model)) * cluster.devices_per_node;
  if (cluster.host.memory_bytes > 0 && needed > cluster.host.memory_bytes) {
    throw InfeasibleError(
        "infeasible: host memory: optimizer states of {} need {:.1f} GiB on every node of {}, "
        "which "
        "has {:.1f} GiB, {:.1f} GiB less; {} nodes hold them",
        model.model.name, needed / kGiB, cluster.name, cluster.host.memory_bytes / kGiB,
        (needed - cluster.host.memory_bytes) / kGiB,
        static_cast<int>(std::ceil(cluster.nodes * needed / cluster.host.memory_bytes)));
  }
}

const char* to_string(OptimizerStates states) {
  return states == OptimizerStates::host ? "host" : "device";
}

OptimizerStates parse_optimizer_states(const std::string& text, const std::string& where) {
  if (text == "host") return OptimizerStates::host;
  if (text == "device") return OptimizerStates::device;
  throw InputError("{}: \"{}\", expected device or host", where, text);
}

}  // namespace hydraulis
