#pragma once

#include "costmodel/cluster_spec.h"
#include "planner/program/program.h"
#include "sim/replay.h"

namespace hydraulis::detail {

/// Adds to computations what the gathers and reductions beside them cost (overlap_slowdown()):
/// those that lowering puts there. With sharded parameters that is what follows a pass up to its
/// next barrier without waiting for it; with replicated ones the gather of the next piece's layers,
/// and the reduction of the piece before.
void slow_overlapped(const Program& program, const ClusterSpec& cluster, Durations& durations);

}  // namespace hydraulis::detail
