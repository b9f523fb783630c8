#pragma once

#include "planner/program/program.h"
#include "sim/graph.h"
#include "sim/shared_run.h"
#include "sim/topology.h"

namespace hydraulis::detail {

/// The links that a program's transfers share, as replay() describes it. Transfers that load links
/// alike are one kind, links that are loaded alike are one resource, and links that cannot be
/// filled by what may run at once are none, so that an idle or symmetric network costs nothing.
/// Throws what program_fault() throws for devices that the network does not have.
Sharing share_links(const Program& program, const Graph& graph, const Topology& topology,
                    double wire_bytes, const ReplayOptions& options);

}  // namespace hydraulis::detail
