#pragma once

#include <functional>
#include <memory>

#include "planner/policies/own_groups.h"

namespace hydraulis {

/// What a micro-batch takes on groups of one context-parallel degree with sharded parameters,
/// traffic as the simulator costs it on an empty network.
struct ShardedTimes {
  PipelineCost pipeline;
  StageCost forward;   ///< with its all-to-alls
  StageCost backward;  ///< the same
};

/// What all devices do for a step of one micro-batch each.
struct ShardedStep {
  double first_gather = 0;   ///< before a forward
  double other_gathers = 0;  ///< beside it
  double first_backward_gather = 0;
  double beside_backward = 0;  ///< other gathers and all but the last reduction
  double last_reduction = 0;
  double slowdown = 0;  ///< of computation beside traffic (overlap_slowdown)
};

/// Times of a sharded_model(): `traffic` false leaves out everything that moves, as
/// --no-communication does.
ShardedTimes sharded_times(const CostModel& model, const PipelineCost& pipeline, bool traffic);
ShardedStep sharded_step(const CostModel& model, bool traffic);
/// A step whose longest forward and backward take this long.
double step_seconds(const ShardedStep& step, double forward, double backward);

/// Context-parallel degrees: powers of two that divide the cluster's devices and, with all-to-alls,
/// share heads evenly.
std::vector<int> context_degrees(const CostModel& model, ContextExchange exchange);

/// Equal groups over the whole cluster with sharded parameters.
struct ShardedLayout {
  ShardedTimes times;
  int groups = 0;
};

/// Micro-batches of each group for one batch.
using ShardedPlanner = std::function<std::vector<std::vector<MicroBatch>>(std::span<const Sequence>,
                                                                          const ShardedLayout&)>;

/// Tries every degree, with and without recomputation, that holds the context, plans up to 16 of
/// the setup's batches on it and keeps the one with the least estimated time, traffic included
/// (unless the setup leaves it out). Throws InfeasibleError naming the longest sequence that some
/// layout holds.
ShardedLayout best_sharded_layout(const PolicySetup& setup, const CostModel& model,
                                  const ShardedPlanner& planner, std::string& remark);

/// Up to 16 of the setup's batches, spread evenly.
std::vector<std::vector<Sequence>> tuning_batches(const PolicySetup& setup);

/// A policy on one such layout.
std::unique_ptr<Policy> make_sharded_policy(const PolicySetup& setup, ContextExchange exchange,
                                            ShardedPlanner planner);

}  // namespace hydraulis
