#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/program/program.h"
#include "sim/fair_share.h"
#include "sim/graph.h"

namespace hydraulis::detail {

/// The resources that the activities of a program share, and how much each takes.
struct Sharing {
  std::vector<double> capacities;
  std::vector<std::uint32_t> first_use;  ///< of each activity, into uses; plus the end
  std::vector<ResourceUse> uses;

  std::span<const ResourceUse> of(std::uint32_t activity) const {
    return std::span(uses).subspan(first_use[activity],
                                   first_use[activity + 1] - first_use[activity]);
  }
};

/// Devices that are processes on the cores of their node: a device computes with
/// max(1, cores / devices of a node) cores and moves data with one of those, so that its own
/// communication takes computing time, and all devices of a node share its cores. Stages' devices
/// move together. gradient_norm and barrier take no core.
Sharing share_cores(const Program& program, const Graph& graph, int cores_per_node);

}  // namespace hydraulis::detail
