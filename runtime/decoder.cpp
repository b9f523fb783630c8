#include "runtime/decoder.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace hydraulis {
namespace {

std::string name_of(const ModelSpec& model, int layer, TensorKind kind) {
  if (kind == TensorKind::embedding) return "model.embed_tokens.weight";
  if (kind == TensorKind::final_norm) return "model.norm.weight";
  if (kind == TensorKind::head) return "lm_head.weight";
  const char* part = nullptr;
  switch (kind) {
    case TensorKind::attention_norm:
      part = "input_layernorm.weight";
      break;
    case TensorKind::query:
      part = "self_attn.q_proj.weight";
      break;
    case TensorKind::key:
      part = "self_attn.k_proj.weight";
      break;
    case TensorKind::value:
      part = "self_attn.v_proj.weight";
      break;
    case TensorKind::query_bias:
      part = "self_attn.q_proj.bias";
      break;
    case TensorKind::key_bias:
      part = "self_attn.k_proj.bias";
      break;
    case TensorKind::value_bias:
      part = "self_attn.v_proj.bias";
      break;
    case TensorKind::query_norm:
      part = "self_attn.q_norm.weight";
      break;
    case TensorKind::key_norm:
      part = "self_attn.k_norm.weight";
      break;
    case TensorKind::attention_output:
      part = "self_attn.o_proj.weight";
      break;
    case TensorKind::mlp_norm:
      part = "post_attention_layernorm.weight";
      break;
    case TensorKind::gate:
      part = "mlp.gate_proj.weight";
      break;
    case TensorKind::up:
      part = "mlp.up_proj.weight";
      break;
    case TensorKind::down:
      part = "mlp.down_proj.weight";
      break;
    case TensorKind::embedding:
    case TensorKind::final_norm:
    case TensorKind::head:
      break;
  }
  if (part == nullptr) throw std::logic_error("a tensor of " + model.name + " without a name");
  return fmt::format("model.layers.{}.{}", layer, part);
}

std::vector<std::int64_t> shape_of(const ModelSpec& model, TensorKind kind) {
  const std::int64_t hidden = model.hidden;
  const std::int64_t queries = static_cast<std::int64_t>(model.heads) * model.head_dim;
  const std::int64_t keys = static_cast<std::int64_t>(model.kv_heads) * model.head_dim;
  switch (kind) {
    case TensorKind::embedding:
    case TensorKind::head:
      return {model.vocab, hidden};
    case TensorKind::attention_norm:
    case TensorKind::mlp_norm:
    case TensorKind::final_norm:
      return {hidden};
    case TensorKind::query:
      return {queries, hidden};
    case TensorKind::key:
    case TensorKind::value:
      return {keys, hidden};
    case TensorKind::query_bias:
      return {queries};
    case TensorKind::key_bias:
    case TensorKind::value_bias:
      return {keys};
    case TensorKind::query_norm:
    case TensorKind::key_norm:
      return {model.head_dim};
    case TensorKind::attention_output:
      return {hidden, queries};
    case TensorKind::gate:
    case TensorKind::up:
      return {model.ffn_hidden, hidden};
    case TensorKind::down:
      return {hidden, model.ffn_hidden};
  }
  throw std::logic_error("a tensor without a shape");
}

}  // namespace

std::vector<double> inverse_frequencies(const DecoderSpec& decoder) {
  const int pairs = decoder.shape.head_dim / 2;
  const RotaryScaling& scaling = decoder.rotary_scaling;
  std::vector<double> frequencies(pairs);
  for (int i = 0; i < pairs; ++i) {
    double f = std::pow(decoder.rotary_theta, -2.0 * i / decoder.shape.head_dim);
    if (scaling.kind == RotaryScaling::Kind::linear) f /= scaling.factor;
    if (scaling.kind == RotaryScaling::Kind::llama3) {
      // Long waves are stretched, short ones kept, those between blended (Llama 3.1).
      const double wave = 2 * std::numbers::pi / f;
      const double low = scaling.low_frequency_factor;
      const double high = scaling.high_frequency_factor;
      if (wave > scaling.original_context / low) {
        f /= scaling.factor;
      } else if (wave >= scaling.original_context / high) {
        const double smooth = (scaling.original_context / wave - low) / (high - low);
        f = (1 - smooth) * f / scaling.factor + smooth * f;
      }
    }
    frequencies[i] = f;
  }
  return frequencies;
}

std::int64_t LogicalTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

std::vector<LogicalTensor> logical_tensors(const ModelSpec& model) {
  std::vector<LogicalTensor> tensors;
  for (int layer = kEmbeddingLayer; layer <= model.layers; ++layer) {
    for (const ParameterTensor& tensor : layer_tensors(model, layer)) {
      const bool transposed =
          tensor.kind == TensorKind::attention_output || tensor.kind == TensorKind::down;
      tensors.push_back({layer, tensor.kind, name_of(model, layer, tensor.kind),
                         shape_of(model, tensor.kind), transposed});
    }
  }
  return tensors;
}

}  // namespace hydraulis
