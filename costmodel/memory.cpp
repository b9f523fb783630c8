#include "costmodel/memory.h"

#include <algorithm>

namespace hydraulis {
namespace {

constexpr double kBf16 = 2;
constexpr double kFp32 = 4;

double per_device(int count, int tp) {
  // What does not divide is padded, so that every device has as much as the fullest.
  return (count + tp - 1) / tp;
}

/// Backward's inputs without recomputation, bf16, by the layer's structure: two norms with their
/// outputs (8h), queries and attention output (4q), keys and values (4kv), gate, up and their
/// product (6f), and the softmax's log-sum in fp32. Sequence parallelism splits all of it by tp.
double derived_activation_bytes(const ModelSpec& model, int tp) {
  const double heads = per_device(model.heads, tp);
  const double kv_heads = per_device(model.kv_heads, tp);
  return (8.0 * model.hidden + 6.0 * model.ffn_hidden) / tp +
         4.0 * model.head_dim * (heads + kv_heads) + kFp32 * heads;
}

double optimizer_bytes(const ModelSpec& model, const OptimizerLayout& layout,
                       double bytes_per_parameter) {
  Scheme split;
  split.pp = std::min(layout.pp, model.layers);
  const auto layers = stage_layers(split, model.layers);
  double most = 0;
  for (int stage = 0; stage < split.pp; ++stage) {
    most = std::max(most, detail::device_parameters(model, layout.tp, split.pp, stage,
                                                    layers[static_cast<std::size_t>(stage)]));
  }
  return bytes_per_parameter * most / layout.dp;
}

}  // namespace

namespace detail {

std::optional<MemoryLine> published_memory(const CostModel& model, const Scheme& scheme) {
  const PublishedMemory& memory = model.profile.memory;
  const auto activation = memory.activation_bytes_by_tp.find(scheme.tp);
  if (activation == memory.activation_bytes_by_tp.end()) return std::nullopt;
  if (scheme.recompute != Recompute::none) return std::nullopt;
  const auto layers = stage_layers(scheme, model.model.layers);
  const double stage = *std::max_element(layers.begin(), layers.end());
  const double hidden = model.model.hidden;
  const double vocab = model.model.vocab;
  const OptimizerLayout& layout = model.optimizer;
  const double fixed_share = memory.optimizer_share / layout.dp;
  const double moving_share = 1 - memory.optimizer_share;
  // Bytes per embedding element: both ends on one stage, or one end each.
  const auto ends = [](int pp) { return pp == 1 ? 32.0 : 16.0; };
  MemoryLine line;
  line.fixed_bytes = model.model.layers / static_cast<double>(layout.pp) *
                         (hidden * hidden / layout.tp) * memory.state_bytes * fixed_share +
                     stage * (hidden * hidden / scheme.tp) * memory.state_bytes * moving_share +
                     hidden * vocab / layout.tp * ends(layout.pp) * fixed_share +
                     hidden * vocab / scheme.tp * ends(scheme.pp) * moving_share +
                     memory.constant_gap_bytes;
  line.bytes_per_token = stage * scheme.pp * (hidden / scheme.tp) * activation->second / scheme.cp;
  return line;
}

int live_micro_batches(const Scheme& scheme, int stage, int in_flight) {
  if (in_flight <= 0) in_flight = scheme.pp;
  return in_flight > scheme.pp ? in_flight : std::min(in_flight, scheme.pp - stage);
}

double device_parameters(const ModelSpec& model, int tp, int pp, int stage, int layers) {
  const double hidden = model.hidden;
  const double query = per_device(model.heads, tp) * model.head_dim;
  const double key_value = per_device(model.kv_heads, tp) * model.head_dim;
  double layer =
      2 * hidden * (query + key_value) + 3 * hidden * per_device(model.ffn_hidden, tp) + 2 * hidden;
  if (model.qkv_bias) layer += query + 2 * key_value;
  if (model.qk_norm) layer += 2.0 * model.head_dim;
  const double vocabulary = per_device(model.vocab, tp) * hidden;
  double count = layers * layer;
  if (stage == 0) count += vocabulary;
  if (stage == pp - 1) {
    count += hidden;
    // Tied embeddings on two stages are two copies.
    if (!model.tied_embeddings || pp > 1) count += vocabulary;
  }
  return count;
}

double layer_activation_bytes(const ModelSpec& model, const PublishedMemory& measured, int tp,
                              Recompute recompute) {
  if (recompute == Recompute::full) return kBf16 * model.hidden / tp;
  const auto found = measured.activation_bytes_by_tp.find(tp);
  double bytes = found == measured.activation_bytes_by_tp.end()
                     ? derived_activation_bytes(model, tp)
                     : found->second * model.hidden / tp;
  // Selective: norm outputs and the gated product are computed again.
  if (recompute == Recompute::selective) {
    bytes -= (2 * kBf16 * model.hidden + kBf16 * model.ffn_hidden) / tp;
  }
  return bytes;
}

}  // namespace detail

StageMemory stage_memory(const CostModel& model, const Scheme& scheme, int stage,
                         double live_tokens, double largest_micro_batch) {
  const ModelSpec& spec = model.model;
  const int layers = stage_layers(scheme, spec.layers).at(static_cast<std::size_t>(stage));
  const PublishedMemory& measured = model.profile.memory;
  const double live = live_tokens / scheme.cp;
  const double largest = largest_micro_batch / scheme.cp;
  StageMemory memory;
  const double parameters = detail::device_parameters(spec, scheme.tp, scheme.pp, stage, layers);
  memory.optimizer = optimizer_bytes(spec, model.optimizer, model.numbers.optimizer);
  memory.parameters = model.numbers.parameter * parameters;
  // The published constants hold 4.2 bytes a parameter for bf16 parameters and gradients together
  // (B·(1 − alpha)·H² a layer).
  memory.gradients = model.numbers.gradient * parameters;
  if (model.sharding == ParameterSharding::sharded) {
    // A share of everything; the layer in use with the one that is fetched ahead, and the gradients
    // of one layer on their way out.
    const double devices = model.cluster.devices();
    const double layer = static_cast<double>(
        std::max({layer_parameters(spec), embedding_parameters(spec), head_parameters(spec)}));
    memory.parameters = memory.parameters / devices + 2 * model.numbers.parameter * layer;
    memory.gradients = memory.gradients / devices + model.numbers.gradient * layer;
  }
  // Bytes by token are those of bf16.
  const double wider = model.numbers.activation / kBf16;
  memory.activations = wider * live * layers *
                       detail::layer_activation_bytes(spec, measured, scheme.tp, scheme.recompute);
  if (scheme.recompute == Recompute::full) {
    // The layer that is being computed again.
    memory.activations +=
        wider * largest *
        detail::layer_activation_bytes(spec, measured, scheme.tp, Recompute::none);
  }
  if (stage == scheme.pp - 1) {
    // Cross entropy works in place on the logits of one micro-batch.
    memory.logits = largest * per_device(spec.vocab, scheme.tp) * model.numbers.logit;
  }
  const double hidden_bytes = model.numbers.activation * spec.hidden * largest;
  if (scheme.tp > 1) memory.buffers += 2 * hidden_bytes;  // gathered input, gathered gradient
  if (scheme.cp > 1 && model.context_exchange == ContextExchange::all_to_all) {
    // Queries, keys, values and output in the form of the other side of the exchange.
    memory.buffers += 2 * model.numbers.activation * spec.head_dim *
                      (spec.heads + static_cast<double>(spec.kv_heads)) * largest;
  } else if (scheme.cp > 1) {
    // Keys and values of this step and of the next.
    memory.buffers += 2 * 2 * model.numbers.activation * per_device(spec.kv_heads, scheme.tp) *
                      spec.head_dim * largest;
  }
  if (scheme.pp > 1) memory.buffers += 2 * hidden_bytes / scheme.tp;  // one in, one out
  memory.constant = measured.constant_gap_bytes;
  return memory;
}

}  // namespace hydraulis
