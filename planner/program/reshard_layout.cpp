#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "planner/program/reshard.h"

namespace hydraulis {
namespace {

std::int64_t share(std::int64_t total, std::int64_t parts, std::int64_t part) {
  return total / parts * part + total % parts * part / parts;
}

ParameterTensor split(TensorKind kind, std::int64_t units, std::int64_t unit_elements) {
  return {kind, units, unit_elements, true, false};
}

ParameterTensor whole(TensorKind kind, std::int64_t elements) {
  return {kind, elements, 1, false, false};
}

ParameterTensor vocabulary(TensorKind kind, const ModelSpec& model) {
  return {kind, model.vocab, model.hidden, true, true};
}

/// Every element belongs to exactly one rank, also where compute replicates the tensor.
std::pair<std::int64_t, std::int64_t> owned_shard(const ParameterTensor& tensor, int tp, int rank) {
  if (tensor.split && tensor.units >= tp) return tensor_shard(tensor, tp, rank);
  return {share(tensor.elements(), tp, rank), share(tensor.elements(), tp, rank + 1)};
}

}  // namespace

const char* to_string(TensorKind kind) {
  static constexpr const char* kNames[kTensorKinds] = {"embedding",
                                                       "attention_norm",
                                                       "query",
                                                       "key",
                                                       "value",
                                                       "query_bias",
                                                       "key_bias",
                                                       "value_bias",
                                                       "query_norm",
                                                       "key_norm",
                                                       "attention_output",
                                                       "mlp_norm",
                                                       "gate",
                                                       "up",
                                                       "down",
                                                       "final_norm",
                                                       "head"};
  return kNames[static_cast<int>(kind)];
}

std::vector<ParameterTensor> layer_tensors(const ModelSpec& model, int layer) {
  using enum TensorKind;
  if (layer == kEmbeddingLayer) return {vocabulary(embedding, model)};
  const std::int64_t hidden = model.hidden;
  if (layer == model.layers) {
    std::vector<ParameterTensor> tensors{whole(final_norm, hidden)};
    if (!model.tied_embeddings) tensors.push_back(vocabulary(head, model));
    return tensors;
  }
  const std::int64_t dim = model.head_dim;
  std::vector<ParameterTensor> tensors{
      whole(attention_norm, hidden), split(query, model.heads, dim * hidden),
      split(key, model.kv_heads, dim * hidden), split(value, model.kv_heads, dim * hidden)};
  if (model.qkv_bias) {
    tensors.push_back(split(query_bias, model.heads, dim));
    tensors.push_back(split(key_bias, model.kv_heads, dim));
    tensors.push_back(split(value_bias, model.kv_heads, dim));
  }
  if (model.qk_norm) {
    tensors.push_back(whole(query_norm, dim));
    tensors.push_back(whole(key_norm, dim));
  }
  tensors.push_back(split(attention_output, model.heads, dim * hidden));
  tensors.push_back(whole(mlp_norm, hidden));
  tensors.push_back(split(gate, model.ffn_hidden, hidden));
  tensors.push_back(split(up, model.ffn_hidden, hidden));
  tensors.push_back(split(down, model.ffn_hidden, hidden));
  return tensors;
}

std::pair<std::int64_t, std::int64_t> tensor_shard(const ParameterTensor& tensor, int tp,
                                                   int rank) {
  if (!tensor.split) return {0, tensor.elements()};
  std::int64_t begin = 0;
  std::int64_t end = 0;
  if (tensor.vocabulary) {
    const std::int64_t rows = (tensor.units + tp - 1) / tp;
    begin = std::min(tensor.units, rows * rank);
    end = std::min(tensor.units, rows * (rank + 1));
  } else {
    begin = share(tensor.units, tp, rank);
    end = tensor.units >= tp ? share(tensor.units, tp, rank + 1) : begin + 1;
  }
  return {begin * tensor.unit_elements, end * tensor.unit_elements};
}

int optimizer_stage(const ModelSpec& model, const OptimizerLayout& optimizer, int layer) {
  if (layer == kEmbeddingLayer) return 0;
  if (layer == model.layers) return optimizer.pp - 1;
  Scheme scheme;
  scheme.tp = optimizer.tp;
  scheme.pp = optimizer.pp;
  const std::vector<int> counts = stage_layers(scheme, model.layers);
  int stage = 0;
  for (int end = counts[0]; layer >= end; end += counts[stage]) ++stage;
  return stage;
}

Layout optimizer_layout(const ModelSpec& model, const OptimizerLayout& optimizer, int layer) {
  const int stage = optimizer_stage(model, optimizer, layer);
  const std::vector<ParameterTensor> tensors = layer_tensors(model, layer);
  Layout layout;
  for (int rank = 0; rank < optimizer.tp; ++rank) {
    std::int64_t length = 0;
    for (const ParameterTensor& tensor : tensors) {
      const auto [begin, end] = owned_shard(tensor, optimizer.tp, rank);
      length += end - begin;
    }
    for (int replica = 0; replica < optimizer.dp; ++replica) {
      const int device = (stage * optimizer.dp + replica) * optimizer.tp + rank;
      const std::int64_t low = share(length, optimizer.dp, replica);
      const std::int64_t high = share(length, optimizer.dp, replica + 1);
      std::int64_t offset = 0;  // of the tensor's shard in the rank's flattened range
      for (const ParameterTensor& tensor : tensors) {
        const auto [begin, end] = owned_shard(tensor, optimizer.tp, rank);
        const std::int64_t from = std::max(begin, begin + low - offset);
        const std::int64_t to = std::min(end, begin + high - offset);
        if (from < to) layout.push_back({device, tensor.kind, from, to});
        offset += end - begin;
      }
    }
  }
  return layout;
}

Layout stage_layout(const ModelSpec& model, const Stage& stage, int tp, int layer) {
  std::vector<ParameterTensor> tensors = layer_tensors(model, layer);
  if (layer == model.layers && model.tied_embeddings && !stage.has_embedding) {
    tensors.push_back(layer_tensors(model, kEmbeddingLayer).front());
  }
  Layout layout;
  layout.reserve(stage.devices.size() * tensors.size());
  for (std::size_t i = 0; i < stage.devices.size(); ++i) {
    for (const ParameterTensor& tensor : tensors) {
      const auto [begin, end] = tensor_shard(tensor, tp, static_cast<int>(i) % tp);
      if (begin < end) layout.push_back({stage.devices[i], tensor.kind, begin, end});
    }
  }
  return layout;
}

}  // namespace hydraulis
