#pragma once

#include <span>
#include <vector>

#include "sim/replay.h"
#include "sim/topology.h"

namespace hydraulis {

/// Bytes from one device to another, once the flows that it comes after have arrived.
struct Flow {
  int source = 0;
  int destination = 0;
  double bytes = 0;
  std::vector<int> after;  ///< indices of earlier flows
};

/// When each flow ran: the latency of its route, then its bytes at most as fast as the slowest link
/// of the route; flows share links max-min fairly. Throws Error (internal) for devices that the
/// topology does not have, negative or not finite bytes and flows that come after later ones.
std::vector<Span> run_flows(std::span<const Flow> flows, const Topology& topology);

/// All-reduce of `bytes` as a ring through the devices in the order given: in each of 2(n − 1)
/// steps every device sends bytes/n to the next one, once it has what came to it in the step
/// before.
std::vector<Flow> ring_all_reduce(std::span<const int> devices, double bytes);

}  // namespace hydraulis
