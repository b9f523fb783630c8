#pragma once

#include <cstdint>
#include <vector>

#include "costmodel/model_spec.h"
#include "costmodel/operator_profile.h"
#include "costmodel/scheme.h"

namespace hydraulis {

/// One call of a kernel on one device of a stage.
struct KernelUse {
  KernelShape shape;
  std::int64_t tokens = 0;  ///< rows
  /// Attention: Σs² of causal sequences with as many query–key pairs as the call works on.
  double sum_squares = 0;
};

/// Devices that a collective joins.
enum class WorkGroup : std::uint8_t { tensor, context };

/// One collective of a stage.
struct CollectiveUse {
  Collective operation = Collective::all_gather;
  WorkGroup group = WorkGroup::tensor;
  int ranks = 1;
  std::int64_t bytes = 0;  ///< as CollectiveSample counts them
  int count = 1;           ///< times in a row
  /// Runs while attention of the same pass does (ring steps): only what is longer counts.
  bool beside_attention = false;
};

/// What one device does for a micro-batch, in the order in which the runtime does it.
struct Work {
  std::vector<KernelUse> kernels;
  std::vector<CollectiveUse> collectives;
};

/// A micro-batch as costs see it.
struct BatchSize {
  double tokens = 0;       ///< Σs, padding included
  double sum_squares = 0;  ///< Σs²
};

enum class WorkPass : std::uint8_t { forward, backward };

/// The kernels and collectives that training runs on each device of a stage with this scheme, one
/// function for each part of a stage. Tensor parallelism with sequence parallelism: rows between
/// layers are split over tp, gathered before column-split products and reduce-scattered after
/// row-split ones. Context parallelism cuts every sequence evenly. The backward of a layer contains
/// what the scheme computes again. Row-split weights (attention output, down) are stored with their
/// outputs as rows, so their forward has the form of another product's input gradient and the other
/// way round. `element_bytes`: of activations.
Work layer_work(const ModelSpec& model, const Scheme& scheme, const BatchSize& batch, WorkPass pass,
                int element_bytes);
/// Of every stage, whatever its layers.
Work stage_work(const ModelSpec& model, const Scheme& scheme, const BatchSize& batch,
                WorkPass pass);
/// Of the first stage: the embedding.
Work embedding_work(const ModelSpec& model, const Scheme& scheme, const BatchSize& batch,
                    WorkPass pass, int element_bytes);
/// Of the last stage: last norm, head, cross entropy.
Work head_work(const ModelSpec& model, const Scheme& scheme, const BatchSize& batch, WorkPass pass,
               int element_bytes);

/// Every kernel shape that the functions above ask for under a tensor-parallel degree
/// (recomputation and context parallelism, which adds kernels but no shapes of products, included),
/// each once: what a profile of this model has to measure. Optimizer kernels are not among them.
std::vector<KernelShape> kernel_shapes(const ModelSpec& model, int tp);

/// Why a tensor-parallel degree cannot divide the model, or "".
std::string tensor_parallel_problem(const ModelSpec& model, int tp);

}  // namespace hydraulis
