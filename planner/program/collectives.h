#pragma once

#include <span>

#include "costmodel/cluster_spec.h"
#include "planner/program/reshard.h"

namespace hydraulis {

/// All-gather of `bytes` over all devices of the cluster, or the reduce-scatter back, as a ring
/// that uses every network card of a node: a device passes on all but its own share inside the
/// node, and its part of what other nodes send. Messages are the ring's steps in units of the
/// slowest link's latency, `times` of them one after the other (one collective a layer).
ReshardSummary all_gather_traffic(double bytes, const ClusterSpec& cluster, int times);

/// All-to-all among `devices`, each of which holds `bytes` and keeps its own share: what the device
/// with the fewest partners in its node sends.
ReshardSummary all_to_all_traffic(double bytes, std::span<const int> devices, int devices_per_node,
                                  int times);

/// Seconds on an idle network: messages one after the other, then bytes inside nodes and between
/// them.
double traffic_seconds(const ReshardSummary& traffic, const ClusterSpec& cluster);

}  // namespace hydraulis
