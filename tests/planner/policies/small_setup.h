#pragma once

#include <map>
#include <utility>
#include <vector>

#include "planner/policy.h"
#include "tests/planner/program/program_fixture.h"

namespace hydraulis::test {

/// A policy's setup on one node of `devices`: the tiny model, rows of made-up times in seconds, and
/// a memory in which a micro-batch on (cp,tp,pp) holds some 7,800·cp/pp tokens (published model).
inline PolicySetup small_setup(int devices, std::int64_t context,
                               const std::vector<SchemeCoefficients>& rows,
                               std::span<const Batch> batches) {
  PolicySetup setup;
  setup.model = testing::cost_model(testing::tiny_model(), 1, devices, {devices, 1, 1});
  setup.model.profile.schemes = rows;
  setup.model.cluster.intra_node = {1, 0};  // a byte a second: nothing that moves pays
  setup.context = context;
  setup.batches = batches;
  return setup;
}

inline SchemeCoefficients row(int tp, int pp, double a, double b, double c) {
  return {testing::scheme(1, tp, pp), a, b, c};
}

/// Sequences numbered from `first_id`.
inline Batch batch_of(const std::vector<std::uint32_t>& lengths, std::uint64_t first_id = 0) {
  Batch batch;
  batch.lengths = lengths;
  for (std::size_t i = 0; i < lengths.size(); ++i) batch.ids.push_back(first_id + i);
  return batch;
}

/// Lengths of every micro-batch, by pipeline.
inline std::vector<std::vector<std::vector<std::uint32_t>>> lengths_of(const BatchPlan& plan) {
  std::vector<std::vector<std::vector<std::uint32_t>>> result;
  for (const PipelinePlan& pipeline : plan.pipelines) {
    auto& one = result.emplace_back();
    for (const MicroBatch& micro_batch : pipeline.micro_batches) one.push_back(micro_batch.lengths);
  }
  return result;
}

}  // namespace hydraulis::test
