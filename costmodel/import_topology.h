#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "costmodel/cluster_spec.h"

namespace hydraulis {

/// A cluster from another simulator's description of a network; `device` is what the nodes hold, as
/// such files say at most its name.
///   - ASTRA-sim's analytical backends (YAML): `topology`, `npus_count`, `bandwidth` (GB/s of a
///   link
///     and direction) and `latency` (ns), one entry a dimension. The first dimension is the node,
///     the second joins nodes, further ones become levels whose oversubscription is the ratio of
///     their bandwidths. A device of a FullyConnected dimension of n has n − 1 links, of a Ring one
///     (what a ring in one direction uses), of a Switch one.
///   - SimAI (text): a line "nodes gpus_per_server nvswitches switches links gpu_type", one with
///   the
///     numbers of the switches (those inside servers first), then one a link: "source destination
///     bandwidth latency error_rate" with units ("100Gbps", "0.0005ms"). Links of GPUs to switches
///     inside a server make intra_node, others inter_node; switches of GPUs with wires to more
///     switches make a level.
/// What the file says and this form does not hold stands in the cluster's notes; its origin is the
/// file. Throws InputError naming the file, the line and what was expected.
ClusterSpec import_topology(const std::filesystem::path& path, const DeviceSpec& device);
/// The same from text; `where` names it in messages.
ClusterSpec parse_topology(std::string_view text, const std::string& where,
                           const DeviceSpec& device);

/// The GPU type that a SimAI file names ("H100"), in lower case; "" for other files.
std::string topology_device(std::string_view text);

}  // namespace hydraulis
