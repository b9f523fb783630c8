#pragma once

#include "costmodel/cost_model.h"
#include "planner/strategy.h"

namespace hydraulis {

/// Of parameter_traffic_seconds(), what computation does not hide when every layer's parameters
/// arrive and its gradients leave beside it (Overlap::on): the first forward of a stage starts with
/// its first layer and can hide no more than its own time, the last backward likewise.
/// Micro-batches are taken to be half full of short sequences, the forward a third of their time.
/// The busiest stage; links as in the cluster, without contention.
double exposed_traffic_seconds(const Strategy& strategy, const CostModel& model);

}  // namespace hydraulis
