#pragma once

#include <initializer_list>

#include "costmodel/cost_model.h"
#include "planner/batch_plan.h"

namespace hydraulis::testing {

/// A model and cluster with round numbers: 2 nodes of 4 devices, 100 MB/s and 10 µs inside a node,
/// 10 MB/s and 20 µs between nodes; one stage of tp1·pp2 takes 1e-6·Σs² + 1e-3·Σs + 0.1 seconds.
inline CostModel small_model() {
  CostModel model;
  model.model.name = "small";
  model.model.layers = 4;
  model.model.hidden = 64;
  model.model.ffn_hidden = 128;
  model.model.heads = 4;
  model.model.kv_heads = 4;
  model.model.head_dim = 16;
  model.model.vocab = 256;
  model.cluster.name = "small";
  model.cluster.nodes = 2;
  model.cluster.devices_per_node = 4;
  model.cluster.device = {"toy", 1e9, 1e9, 1e9};
  model.cluster.intra_node = {100e6, 10e-6};
  model.cluster.inter_node = {10e6, 20e-6};
  model.profile.name = "small";
  model.profile.model = model.model;
  model.optimizer = {2, 2, 2};
  const auto know = [&](int tp, int pp, double a, double b, double c) {
    SchemeCoefficients known;
    known.scheme.tp = tp;
    known.scheme.pp = pp;
    known.a = a;
    known.b = b;
    known.c = c;
    model.profile.schemes.push_back(known);
  };
  know(1, 2, 1e-6, 1e-3, 0.1);
  know(2, 1, 1e-6, 1e-3, 0.1);
  know(1, 4, 0.5e-6, 0.5e-3, 0.05);
  return model;
}

inline PipelinePlan pipeline_of(int tp, int pp,
                                std::initializer_list<std::vector<std::uint32_t>> micro_batches) {
  PipelinePlan pipeline;
  pipeline.scheme.tp = tp;
  pipeline.scheme.pp = pp;
  std::uint64_t id = 0;
  for (const std::vector<std::uint32_t>& lengths : micro_batches) {
    MicroBatch batch;
    batch.lengths = lengths;
    for (std::size_t i = 0; i < lengths.size(); ++i) batch.sequence_ids.push_back(id++);
    pipeline.micro_batches.push_back(batch);
  }
  return pipeline;
}

}  // namespace hydraulis::testing
