#include "runtime/decoder_layer.h"

#include "runtime/ring_attention.h"

namespace hydraulis {
namespace {

struct Normed {
  Tensor output;
  Tensor scale;
};

Normed norm(const ShardContext& context, ConstMatrix x, ConstMatrix weight) {
  Normed result{context.make(x.rows, x.columns), context.make_statistics(x.rows, 1)};
  context.kernels().rms_norm(x, weight, context.decoder->norm_epsilon, result.output.matrix,
                             result.scale.matrix, *context.compute);
  return result;
}

/// x·wᵀ with w [outputs, inputs].
Tensor project(const ShardContext& context, ConstMatrix x, ConstMatrix w) {
  Tensor y = context.make(x.rows, w.rows);
  context.kernels().gemm(false, true, 1, x, w, 0, y.matrix, *context.compute);
  return y;
}

/// x·w with w [inputs, outputs].
Tensor project_back(const ShardContext& context, ConstMatrix x, ConstMatrix w) {
  Tensor y = context.make(x.rows, w.columns);
  context.kernels().gemm(false, false, 1, x, w, 0, y.matrix, *context.compute);
  return y;
}

/// dw += aᵀ·b.
void add_product(const ShardContext& context, ConstMatrix a, ConstMatrix b, Matrix dw) {
  context.kernels().gemm(true, false, 1, a, b, 1, dw, *context.compute);
}

Tensor residual(const ShardContext& context, ConstMatrix x, Tensor y) {
  context.kernels().add(x, y.matrix, y.matrix, *context.compute);
  return y;
}

void rotate(const ShardContext& context, const MicroBatchContext& batch, Matrix qkv, bool inverse) {
  const std::int64_t queries = context.query_columns();
  context.kernels().rotary(qkv.column_range(0, queries), context.heads(), batch.rotary.matrix,
                           inverse, *context.compute);
  context.kernels().rotary(qkv.column_range(queries, context.key_columns()), context.kv_heads(),
                           batch.rotary.matrix, inverse, *context.compute);
}

void attend(const ShardContext& context, const MicroBatchContext& batch,
            const LayerMatrices& weights, LayerActivations& activations) {
  Normed normed = norm(context, activations.input.matrix, weights.attention_norm);
  activations.input_norm = std::move(normed.output);
  activations.input_scale = std::move(normed.scale);
  Tensor whole;
  const ConstMatrix x = gather_rows(context, activations.input_norm.matrix, whole);
  Tensor& qkv = activations.query_key_value;
  qkv = project(context, x, weights.query_key_value);
  if (weights.bias.data != nullptr) {
    context.kernels().gemm(true, false, 1, batch.ones.matrix, weights.bias, 1, qkv.matrix,
                           *context.compute);
  }
  rotate(context, batch, qkv.matrix, false);
  activations.attention = context.make(qkv.matrix.rows, context.query_columns());
  activations.log_sums = context.make_statistics(qkv.matrix.rows, context.heads());
  ring_attention(context, batch.tokens, qkv.matrix, activations.attention.matrix,
                 activations.log_sums.matrix);
  activations.middle = residual(
      context, activations.input.matrix,
      scatter_rows(context,
                   project_back(context, activations.attention.matrix, weights.attention_output)));
}

void gate(const ShardContext& context, LayerActivations& activations) {
  const Matrix& gate_up = activations.gate_up.matrix;
  activations.gated = context.make(gate_up.rows, gate_up.columns / 2);
  context.kernels().swiglu(gate_up, activations.gated.matrix, *context.compute);
}

void feed_forward(const ShardContext& context, const LayerMatrices& weights,
                  LayerActivations& activations) {
  Normed normed = norm(context, activations.middle.matrix, weights.mlp_norm);
  activations.middle_norm = std::move(normed.output);
  activations.middle_scale = std::move(normed.scale);
  Tensor whole;
  const ConstMatrix x = gather_rows(context, activations.middle_norm.matrix, whole);
  activations.gate_up = project(context, x, weights.gate_up);
  gate(context, activations);
}

void restore(const ShardContext& context, const MicroBatchContext& batch,
             const LayerMatrices& weights, LayerActivations& activations) {
  if (context.recompute == Recompute::full) {
    attend(context, batch, weights, activations);
    feed_forward(context, weights, activations);
  } else if (context.recompute == Recompute::selective) {
    activations.input_norm = norm(context, activations.input.matrix, weights.attention_norm).output;
    activations.middle_norm = norm(context, activations.middle.matrix, weights.mlp_norm).output;
    gate(context, activations);
  }
}

}  // namespace

LayerMatrices layer_matrices(const ShardContext& context, const StageParameters& parameters,
                             int layer) {
  const std::int64_t hidden = context.decoder->shape.hidden;
  const std::int64_t outputs = context.query_columns() + 2 * context.key_columns();
  const TensorSlot* gate_slot = parameters.slots(layer).find(TensorKind::gate);
  const std::int64_t channels = (gate_slot->end - gate_slot->begin) / hidden;
  LayerMatrices m;
  m.attention_norm = parameters.matrix(layer, TensorKind::attention_norm, 1, hidden);
  m.query_key_value = parameters.matrix(layer, TensorKind::query, outputs, hidden);
  if (context.decoder->shape.qkv_bias) {
    m.bias = parameters.matrix(layer, TensorKind::query_bias, 1, outputs);
  }
  m.attention_output =
      parameters.matrix(layer, TensorKind::attention_output, context.query_columns(), hidden);
  m.mlp_norm = parameters.matrix(layer, TensorKind::mlp_norm, 1, hidden);
  m.gate_up = parameters.matrix(layer, TensorKind::gate, 2 * channels, hidden);
  m.down = parameters.matrix(layer, TensorKind::down, channels, hidden);
  return m;
}

Tensor forward_layer(const ShardContext& context, const MicroBatchContext& batch,
                     const LayerMatrices& weights, Tensor input, LayerActivations& activations) {
  activations.input = std::move(input);
  attend(context, batch, weights, activations);
  feed_forward(context, weights, activations);
  return residual(
      context, activations.middle.matrix,
      scatter_rows(context, project_back(context, activations.gated.matrix, weights.down)));
}

void drop_recomputed(const ShardContext& context, LayerActivations& activations) {
  if (context.recompute == Recompute::full) {
    Tensor input = std::move(activations.input);
    activations = {};
    activations.input = std::move(input);
  } else if (context.recompute == Recompute::selective) {
    activations.input_norm = {};
    activations.middle_norm = {};
    activations.gated = {};
  }
}

Tensor backward_layer(const ShardContext& context, const MicroBatchContext& batch,
                      const LayerMatrices& weights, const LayerMatrices& gradients, Tensor d_output,
                      LayerActivations activations) {
  restore(context, batch, weights, activations);
  Compute& kernels = context.kernels();
  Stream& stream = *context.compute;

  Tensor d_gate_up = std::move(activations.gate_up);
  {
    Tensor whole;
    const ConstMatrix dy = gather_rows(context, d_output.matrix, whole);
    add_product(context, activations.gated.matrix, dy, gradients.down);
    const Tensor d_gated = project(context, dy, weights.down);
    kernels.swiglu_backward(d_gated.matrix, d_gate_up.matrix, d_gate_up.matrix, stream);
  }
  activations.gated = {};
  {
    Tensor whole;
    const ConstMatrix x = gather_rows(context, activations.middle_norm.matrix, whole);
    add_product(context, d_gate_up.matrix, x, gradients.gate_up);
  }
  activations.middle_norm = {};
  {
    const Tensor d_norm =
        scatter_rows(context, project_back(context, d_gate_up.matrix, weights.gate_up));
    kernels.rms_norm_backward(d_norm.matrix, activations.middle.matrix, weights.mlp_norm,
                              activations.middle_scale.matrix, true, d_output.matrix,
                              gradients.mlp_norm, stream);
  }
  d_gate_up = {};

  Tensor d_qkv = context.make(activations.query_key_value.matrix.rows,
                              activations.query_key_value.matrix.columns);
  {
    Tensor whole;
    const ConstMatrix dy = gather_rows(context, d_output.matrix, whole);
    add_product(context, activations.attention.matrix, dy, gradients.attention_output);
    const Tensor d_attention = project(context, dy, weights.attention_output);
    ring_attention_backward(context, batch.tokens, activations.query_key_value.matrix,
                            activations.attention.matrix, activations.log_sums.matrix,
                            d_attention.matrix, d_qkv.matrix);
  }
  rotate(context, batch, d_qkv.matrix, true);
  if (gradients.bias.data != nullptr) {
    kernels.gemm(false, false, 1, batch.ones.matrix, d_qkv.matrix, 1, gradients.bias, stream);
  }
  {
    Tensor whole;
    const ConstMatrix x = gather_rows(context, activations.input_norm.matrix, whole);
    add_product(context, d_qkv.matrix, x, gradients.query_key_value);
  }
  const Tensor d_norm =
      scatter_rows(context, project_back(context, d_qkv.matrix, weights.query_key_value));
  kernels.rms_norm_backward(d_norm.matrix, activations.input.matrix, weights.attention_norm,
                            activations.input_scale.matrix, true, d_output.matrix,
                            gradients.attention_norm, stream);
  return d_output;
}

}  // namespace hydraulis
