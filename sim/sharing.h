#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "planner/program/program.h"
#include "sim/graph.h"
#include "sim/shared_run.h"

namespace hydraulis::detail {

/// Devices that are processes on the cores of their node: a device computes with
/// max(1, cores / devices of a node) cores and moves data with one of those, so that its own
/// communication takes computing time, and all devices of a node share its cores. Stages' devices
/// move together. gradient_norm and barrier take no core.
Sharing share_cores(const Program& program, const Graph& graph, int cores_per_node);

/// Gives equal lists of uses with the same limit one kind.
class KindTable {
 public:
  explicit KindTable(Sharing& sharing) : sharing_(sharing) {}
  /// kAlone for an empty list, whatever the limit.
  std::uint32_t kind_of(const std::vector<ResourceUse>& uses, double limit = 1);

 private:
  Sharing& sharing_;
  using Key = std::pair<double, std::vector<std::pair<std::uint32_t, double>>>;
  std::map<Key, std::uint32_t> kinds_;
};

}  // namespace hydraulis::detail
