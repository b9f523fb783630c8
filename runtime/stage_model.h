#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "runtime/decoder_layer.h"

namespace hydraulis {

/// The tokens of a micro-batch, sequences one behind the other.
struct MicroBatchTokens {
  std::vector<std::uint32_t> lengths;
  std::vector<std::int32_t> ids;      ///< Σ lengths
  std::vector<std::int32_t> targets;  ///< next token of the same sequence, −1 for none
};

/// Next-token targets: none for a sequence's last token and where `loss_mask` (one entry a token,
/// or empty for all) forbids the predicted token.
std::vector<std::int32_t> next_token_targets(std::span<const std::uint32_t> lengths,
                                             std::span<const std::int32_t> ids,
                                             std::span<const std::uint8_t> loss_mask = {});

/// One device's part of one pipeline stage: forward and backward of micro-batches, with the
/// activations of those between the two.
class StageModel {
 public:
  /// `weights` and `gradients` must outlive it.
  StageModel(ShardContext context, const Stage& stage, const StageParameters& weights,
             const StageParameters& gradients);

  /// Called before a layer's weights are first used, in ascending order.
  std::function<void(int layer)> before_layer;
  /// Called when the last use of a layer's gradients in a backward is over, in descending order.
  std::function<void(int layer)> after_backward_of_layer;

  /// Rows of the activations this device passes on: T/tp.
  std::int64_t shard_rows(int micro_batch) const;
  /// Lays the micro-batch's tokens out; must precede its forward and the receiving of its input.
  void prepare(int micro_batch, const MicroBatchTokens& tokens);
  /// `input` from the previous stage, or empty where the embedding is here. Output for the next
  /// stage, or empty where the head is here. `keep` = false: nothing is kept for a backward.
  Tensor forward(int micro_batch, Tensor input, bool keep);
  /// `d_output` from the next stage, or empty where the head is here. Gradient for the previous
  /// stage, or empty where the embedding is here.
  Tensor backward(int micro_batch, Tensor d_output);

  /// Σ of the loss over this device's targets, nats; only where the head is, and once a
  /// tensor-parallel group.
  double loss_sum() const { return loss_sum_; }
  std::int64_t targets() const { return targets_; }
  void reset_loss();
  /// Losses by token of the concatenated sequences (NaN where there is no target here), collected
  /// by forward() while on.
  bool keep_token_losses = false;
  const std::map<int, std::vector<double>>& token_losses() const { return token_losses_; }

 private:
  struct Head {
    Tensor input;  ///< [T/tp, h]
    Tensor norm;
    Tensor scale;
    Tensor logits;   ///< [T, vocabulary of this device]
    Tensor row_max;  ///< [T, 1]
    Tensor sums;     ///< [T, 2]
  };
  struct Live {
    MicroBatchContext context;
    std::vector<std::int32_t> ids;      ///< by row, −1 for padding
    std::vector<std::int32_t> targets;  ///< by row
    std::int64_t tokens = 0;
    std::vector<LayerActivations> layers;
    Head head;
  };
  Tensor embed(Live& live);
  void head_forward(int micro_batch, Live& live, Tensor input);
  Tensor head_backward(Live& live);
  void count_loss(int micro_batch, const Live& live);
  Matrix head_matrix(const StageParameters& parameters) const;
  Matrix embedding_matrix(const StageParameters& parameters) const;
  std::int64_t real_vocabulary() const;
  void about_to_use(int layer) const {
    if (before_layer) before_layer(layer);
  }
  void done_with(int layer) const {
    if (after_backward_of_layer) after_backward_of_layer(layer);
  }

  ShardContext context_;
  Stage stage_;
  const StageParameters* weights_;
  const StageParameters* gradients_;
  std::vector<LayerMatrices> layer_weights_;
  std::vector<LayerMatrices> layer_gradients_;
  std::vector<double> frequencies_;
  std::map<int, Live> live_;
  double loss_sum_ = 0;
  std::int64_t targets_ = 0;
  std::map<int, std::vector<double>> token_losses_;
};

}  // namespace hydraulis
