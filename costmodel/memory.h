#pragma once

#include <optional>

#include "costmodel/cost_model.h"

namespace hydraulis::detail {

/// Bytes on one device as a line in the tokens of a micro-batch.
struct MemoryLine {
  double fixed_bytes = 0;
  double bytes_per_token = 0;
};

/// The authors' formula for a scheme (the safety margin is not in it), or nothing when it has no
/// constants for the scheme: an unmeasured tensor-parallel degree, or recomputation.
std::optional<MemoryLine> published_memory(const CostModel& model, const Scheme& scheme);

/// Micro-batches alive at a stage when `in_flight` (0: pp) are alive at the first one. Under 1F1B
/// stage i never holds more than pp − i; more than pp in flight means GPipe, alike at every stage.
int live_micro_batches(const Scheme& scheme, int stage, int in_flight);

/// Parameters that one device of a stage holds: matrices, vocabulary rows and key/value heads split
/// over tp (fewer heads than devices are repeated), norms whole.
double device_parameters(const ModelSpec& model, int tp, int pp, int stage, int layers);

/// Bytes of activations that backward needs, per token and layer on one device of a tp group.
double layer_activation_bytes(const ModelSpec& model, const PublishedMemory& measured, int tp,
                              Recompute recompute);

}  // namespace hydraulis::detail
