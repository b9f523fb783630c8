#pragma once

#include "runtime/shard_context.h"
#include "runtime/stage_parameters.h"
#include "runtime/token_layout.h"

namespace hydraulis {

/// One layer's weights, or their gradients, on one device. Weights whose inputs are split over tp
/// (attention output, down) lie transposed, [inputs, h]; the others [outputs, h].
struct LayerMatrices {
  Matrix attention_norm;  ///< [1, h]
  Matrix query_key_value;
  Matrix bias;  ///< [1, q + k + v columns]; empty without biases
  Matrix attention_output;
  Matrix mlp_norm;  ///< [1, h]
  Matrix gate_up;   ///< [2f, h]
  Matrix down;
};
LayerMatrices layer_matrices(const ShardContext& context, const StageParameters& parameters,
                             int layer);

/// What the backward of a layer needs of its forward. T rows of all tokens of the device's
/// context-parallel rank, T/tp rows between layers.
struct LayerActivations {
  Tensor input;        ///< [T/tp, h]
  Tensor input_norm;   ///< [T/tp, h] after the norm; empty with selective recomputation
  Tensor input_scale;  ///< [T/tp, 1]
  Tensor query_key_value;
  Tensor attention;     ///< [T, q columns]
  Tensor log_sums;      ///< [T, heads]
  Tensor middle;        ///< [T/tp, h] after the attention's residual
  Tensor middle_norm;   ///< empty with selective recomputation
  Tensor middle_scale;  ///< [T/tp, 1]
  Tensor gate_up;       ///< [T, 2f]
  Tensor gated;         ///< [T, f]; empty with selective recomputation
};

/// What all layers of a micro-batch share.
struct MicroBatchContext {
  TokenLayout tokens;
  Tensor rotary;  ///< [T, d]
  Tensor ones;    ///< [1, T] where the model has biases
};

/// Runs the layer on `input`; the activations take it over.
Tensor forward_layer(const ShardContext& context, const MicroBatchContext& batch,
                     const LayerMatrices& weights, Tensor input, LayerActivations& activations);
/// Frees what the scheme recomputes.
void drop_recomputed(const ShardContext& context, LayerActivations& activations);
/// Gradient to the layer's input; adds to the weights' gradients. Recomputes what was dropped;
/// frees the activations.
Tensor backward_layer(const ShardContext& context, const MicroBatchContext& batch,
                      const LayerMatrices& weights, const LayerMatrices& gradients, Tensor d_output,
                      LayerActivations activations);

}  // namespace hydraulis
