#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/program/lower.h"

namespace hydraulis::testing {

inline ModelSpec tiny_model() {
  ModelSpec model;
  model.name = "tiny";
  model.layers = 4;
  model.hidden = 8;
  model.ffn_hidden = 24;
  model.heads = 8;
  model.kv_heads = 8;
  model.head_dim = 2;
  model.vocab = 40;
  return model;
}

/// A cost model with no times and a published memory model of made-up small numbers: it holds some
/// thousand tokens of tiny_model().
inline CostModel cost_model(const ModelSpec& model, int nodes, int devices_per_node,
                            OptimizerLayout optimizer) {
  CostModel cost;
  cost.model = model;
  cost.cluster.name = "test";
  cost.cluster.nodes = nodes;
  cost.cluster.devices_per_node = devices_per_node;
  cost.cluster.device.memory_bytes = 1e9;
  cost.optimizer = optimizer;
  cost.profile.model = model;
  cost.profile.memory.optimizer_share = 0.75;
  cost.profile.memory.device_bound_bytes = 8192.0 * model.layers * model.hidden;
  for (const int tp : {1, 2, 4, 8, 16}) cost.profile.memory.activation_bytes_by_tp[tp] = tp;
  return cost;
}

inline Scheme scheme(int cp, int tp, int pp) {
  Scheme result;
  result.cp = cp;
  result.tp = tp;
  result.pp = pp;
  return result;
}

/// Micro-batches of one sequence each; ids count on from `first_id`.
inline PipelinePlan pipeline_plan(const Scheme& scheme, const std::vector<std::uint32_t>& lengths,
                                  std::uint64_t first_id = 0) {
  PipelinePlan plan;
  plan.scheme = scheme;
  for (const std::uint32_t length : lengths) {
    MicroBatch micro_batch;
    micro_batch.sequence_ids = {first_id++};
    micro_batch.lengths = {length};
    plan.micro_batches.push_back(micro_batch);
  }
  return plan;
}

}  // namespace hydraulis::testing
