#include "runtime/stage_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace hydraulis {
namespace {

/// Device matrix of one column block as doubles.
std::vector<double> to_host(const Backend& backend, Matrix matrix, Stream& stream) {
  std::vector<double> values(matrix.elements());
  if (matrix.type == DataType::f64) {
    backend.device->copy_to_host(values.data(), matrix.data, matrix.elements() * 8, stream);
    backend.device->synchronize(stream);
    return values;
  }
  std::vector<float> singles(matrix.elements());
  backend.device->copy_to_host(singles.data(), matrix.data, matrix.elements() * 4, stream);
  backend.device->synchronize(stream);
  for (std::size_t i = 0; i < singles.size(); ++i) values[i] = static_cast<double>(singles[i]);
  return values;
}

Tensor filled(const ShardContext& context, std::int64_t columns, double value) {
  Tensor wide = context.make_statistics(1, columns);
  const std::vector<double> doubles(columns, value);
  const std::vector<float> singles(columns, static_cast<float>(value));
  const bool is_double = wide.matrix.type == DataType::f64;
  context.backend->device->copy_to_device(wide.matrix.data,
                                          is_double ? static_cast<const void*>(doubles.data())
                                                    : static_cast<const void*>(singles.data()),
                                          wide.bytes(), *context.compute);
  context.backend->device->synchronize(*context.compute);
  if (wide.matrix.type == context.backend->type) return wide;
  Tensor tensor = context.make(1, columns);
  context.kernels().convert(wide.matrix, tensor.matrix, *context.compute);
  return tensor;
}

}  // namespace

std::vector<std::int32_t> next_token_targets(std::span<const std::uint32_t> lengths,
                                             std::span<const std::int32_t> ids,
                                             std::span<const std::uint8_t> loss_mask) {
  std::vector<std::int32_t> targets(ids.size(), -1);
  std::size_t begin = 0;
  for (const std::uint32_t length : lengths) {
    for (std::size_t i = begin; i + 1 < begin + length; ++i) {
      if (loss_mask.empty() || loss_mask[i + 1] != 0) targets[i] = ids[i + 1];
    }
    begin += length;
  }
  return targets;
}

StageModel::StageModel(ShardContext context, const Stage& stage, const StageParameters& weights,
                       const StageParameters& gradients)
    : context_(context),
      stage_(stage),
      weights_(&weights),
      gradients_(&gradients),
      frequencies_(inverse_frequencies(*context.decoder)) {
  for (int layer = stage.layer_begin; layer < stage.layer_end; ++layer) {
    layer_weights_.push_back(layer_matrices(context_, weights, layer));
    layer_gradients_.push_back(layer_matrices(context_, gradients, layer));
  }
}

std::int64_t StageModel::shard_rows(int micro_batch) const {
  return live_.at(micro_batch).context.tokens.rows / context_.tp;
}

void StageModel::prepare(int micro_batch, const MicroBatchTokens& tokens) {
  Live& live = live_[micro_batch];
  live.context.tokens =
      token_layout(tokens.lengths, context_.cp, context_.tp, context_.context_rank);
  const TokenLayout& layout = live.context.tokens;
  live.tokens = static_cast<std::int64_t>(tokens.ids.size());
  live.ids.reserve(layout.rows);
  live.targets.reserve(layout.rows);
  for (const std::int64_t source : layout.sources) {
    live.ids.push_back(source < 0 ? -1 : tokens.ids.at(source));
    live.targets.push_back(source < 0 ? -1 : tokens.targets.at(source));
  }
}

Matrix StageModel::embedding_matrix(const StageParameters& parameters) const {
  // The head's stage keeps its copy of a tied embedding among the head's tensors.
  const int layer = stage_.has_embedding ? kEmbeddingLayer : context_.decoder->shape.layers;
  return parameters.matrix(layer, TensorKind::embedding, context_.vocabulary_rows(),
                           context_.decoder->shape.hidden);
}

Matrix StageModel::head_matrix(const StageParameters& parameters) const {
  const ModelSpec& model = context_.decoder->shape;
  if (model.tied_embeddings) return embedding_matrix(parameters);
  return parameters.matrix(model.layers, TensorKind::head, context_.vocabulary_rows(),
                           model.hidden);
}

std::int64_t StageModel::real_vocabulary() const {
  const std::int64_t rows = context_.vocabulary_rows();
  const std::int64_t first = rows * context_.tensor_rank;
  return std::clamp<std::int64_t>(context_.decoder->shape.vocab - first, 0, rows);
}

Tensor StageModel::embed(Live& live) {
  about_to_use(kEmbeddingLayer);
  Tensor partial = context_.make(live.context.tokens.rows, context_.decoder->shape.hidden);
  context_.kernels().embedding(live.ids, context_.vocabulary_rows() * context_.tensor_rank,
                               embedding_matrix(*weights_).row_range(0, real_vocabulary()),
                               partial.matrix, *context_.compute);
  return scatter_rows(context_, std::move(partial));
}

Tensor StageModel::forward(int micro_batch, Tensor input, bool keep) {
  Live& live = live_.at(micro_batch);
  MicroBatchContext& batch = live.context;
  batch.rotary = context_.make_statistics(batch.tokens.rows, context_.decoder->shape.head_dim);
  context_.kernels().rotary_table(batch.tokens.positions, frequencies_, batch.rotary.matrix,
                                  *context_.compute);
  if (context_.decoder->shape.qkv_bias) batch.ones = filled(context_, batch.tokens.rows, 1);
  Tensor x = stage_.has_embedding ? embed(live) : std::move(input);
  live.layers.resize(layer_weights_.size());
  for (std::size_t i = 0; i < layer_weights_.size(); ++i) {
    about_to_use(stage_.layer_begin + static_cast<int>(i));
    x = forward_layer(context_, batch, layer_weights_[i], std::move(x), live.layers[i]);
    if (keep) {
      drop_recomputed(context_, live.layers[i]);
    } else {
      live.layers[i] = {};
    }
  }
  if (stage_.has_head) {
    head_forward(micro_batch, live, std::move(x));
    x = {};
  }
  if (!keep) {
    // The last all-reduce of the loss's sums may still be under way in what goes back now.
    context_.backend->device->synchronize(*context_.compute);
    live_.erase(micro_batch);
  }
  return x;
}

void StageModel::head_forward(int micro_batch, Live& live, Tensor input) {
  Head& head = live.head;
  const ModelSpec& model = context_.decoder->shape;
  about_to_use(model.layers);
  head.input = std::move(input);
  head.norm = context_.make(head.input.matrix.rows, model.hidden);
  head.scale = context_.make_statistics(head.input.matrix.rows, 1);
  Compute& kernels = context_.kernels();
  Stream& stream = *context_.compute;
  kernels.rms_norm(head.input.matrix,
                   weights_->matrix(model.layers, TensorKind::final_norm, 1, model.hidden),
                   context_.decoder->norm_epsilon, head.norm.matrix, head.scale.matrix, stream);
  Tensor whole;
  const ConstMatrix x = gather_rows(context_, head.norm.matrix, whole);
  const std::int64_t rows = x.rows;
  head.logits = context_.make(rows, context_.vocabulary_rows());
  kernels.gemm(false, true, 1, x, head_matrix(*weights_), 0, head.logits.matrix, stream);
  head.row_max = context_.make_statistics(rows, 1);
  head.sums = context_.make_statistics(rows, 2);
  kernels.cross_entropy_max(head.logits.matrix, real_vocabulary(), head.row_max.matrix, stream);
  Communicator* group = context_.tensor_group;
  if (group != nullptr) {
    group->all_reduce(head.row_max.matrix.data, rows, head.row_max.matrix.type, Reduction::max,
                      stream);
  }
  kernels.cross_entropy_sums(head.logits.matrix, real_vocabulary(),
                             context_.vocabulary_rows() * context_.tensor_rank, live.targets,
                             head.row_max.matrix, head.sums.matrix, stream);
  if (group != nullptr) {
    group->all_reduce(head.sums.matrix.data, 2 * rows, head.sums.matrix.type, Reduction::sum,
                      stream);
  }
  count_loss(micro_batch, live);
}

void StageModel::count_loss(int micro_batch, const Live& live) {
  if (context_.tensor_rank != 0) return;
  const std::vector<double> sums =
      to_host(*context_.backend, live.head.sums.matrix, *context_.compute);
  std::vector<double>* by_token = nullptr;
  if (keep_token_losses) {
    by_token = &token_losses_[micro_batch];
    by_token->assign(live.tokens, std::numeric_limits<double>::quiet_NaN());
  }
  for (std::size_t row = 0; row < live.targets.size(); ++row) {
    if (live.targets[row] < 0) continue;
    const double loss = std::log(sums[2 * row]) - sums[2 * row + 1];
    loss_sum_ += loss;
    ++targets_;
    if (by_token != nullptr) (*by_token)[live.context.tokens.sources[row]] = loss;
  }
}

void StageModel::reset_loss() {
  loss_sum_ = 0;
  targets_ = 0;
  token_losses_.clear();
}

Tensor StageModel::head_backward(Live& live) {
  Head head = std::move(live.head);
  const ModelSpec& model = context_.decoder->shape;
  Compute& kernels = context_.kernels();
  Stream& stream = *context_.compute;
  kernels.cross_entropy_backward(head.logits.matrix, real_vocabulary(),
                                 context_.vocabulary_rows() * context_.tensor_rank, live.targets,
                                 head.row_max.matrix, head.sums.matrix, stream);
  {
    Tensor whole;
    const ConstMatrix x = gather_rows(context_, head.norm.matrix, whole);
    kernels.gemm(true, false, 1, head.logits.matrix, x, 1, head_matrix(*gradients_), stream);
  }
  Tensor d_whole = context_.make(head.logits.matrix.rows, model.hidden);
  kernels.gemm(false, false, 1, head.logits.matrix, head_matrix(*weights_), 0, d_whole.matrix,
               stream);
  Tensor dx = scatter_rows(context_, std::move(d_whole));
  kernels.rms_norm_backward(
      dx.matrix, head.input.matrix,
      weights_->matrix(model.layers, TensorKind::final_norm, 1, model.hidden), head.scale.matrix,
      false, dx.matrix, gradients_->matrix(model.layers, TensorKind::final_norm, 1, model.hidden),
      stream);
  done_with(model.layers);
  return dx;
}

Tensor StageModel::backward(int micro_batch, Tensor d_output) {
  Live& live = live_.at(micro_batch);
  Tensor dx = stage_.has_head ? head_backward(live) : std::move(d_output);
  for (std::size_t i = layer_weights_.size(); i-- > 0;) {
    dx = backward_layer(context_, live.context, layer_weights_[i], layer_gradients_[i],
                        std::move(dx), std::move(live.layers[i]));
    done_with(stage_.layer_begin + static_cast<int>(i));
  }
  if (stage_.has_embedding) {
    Tensor whole;
    const ConstMatrix d_embedded = gather_rows(context_, dx.matrix, whole);
    context_.kernels().embedding_backward(
        live.ids, context_.vocabulary_rows() * context_.tensor_rank, d_embedded,
        embedding_matrix(*gradients_).row_range(0, real_vocabulary()), *context_.compute);
    done_with(kEmbeddingLayer);
    dx = {};
  }
  live_.erase(micro_batch);
  return dx;
}

}  // namespace hydraulis
