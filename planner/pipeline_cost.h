#pragma once

#include <cstdint>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/batch_plan.h"
#include "planner/strategy.h"

namespace hydraulis {

/// What assignment needs to know of one pipeline: time coefficients of each stage and the longest
/// micro-batch that fits its memory.
struct PipelineCost {
  Scheme scheme;
  std::vector<StageCost> stages;  ///< one a stage
  StageCost slowest;              ///< element-wise maximum over the stages
  std::int64_t max_tokens = 0;    ///< padding included; 0: nothing fits

  /// Tokens a sequence takes up on this pipeline: with context parallelism every sequence is padded
  /// to a multiple of 2·cp, so that each rank holds one early and one late chunk of it.
  std::int64_t padded(std::int64_t length) const {
    const std::int64_t unit = scheme.cp > 1 ? 2 * scheme.cp : 1;
    return (length + unit - 1) / unit * unit;
  }
  /// Seconds that a sequence adds to the slowest stage, without the constant per micro-batch.
  double sequence_seconds(std::int64_t length) const {
    const auto s = static_cast<double>(length);
    return slowest.a * s * s + slowest.b * static_cast<double>(padded(length));
  }
  /// Seconds of a whole micro-batch on one stage.
  double stage_seconds(int stage, const MicroBatch& micro_batch) const;
  bool uniform_stages() const;
};

/// Builds the pipeline's costs from the cost model; `max_tokens_cap` (0: none) limits a micro-batch
/// further. Throws InputError when the profile does not know the scheme.
PipelineCost make_pipeline_cost(const CostModel& model, const Scheme& scheme,
                                std::int64_t max_tokens_cap = 0);

/// The costs of a whole strategy, pipeline by pipeline.
std::vector<PipelineCost> make_pipeline_costs(const CostModel& model, const Strategy& strategy,
                                              std::int64_t max_tokens_cap = 0);

}  // namespace hydraulis
