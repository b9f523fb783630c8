#include "planner/program/expand.h"

#include "base/error.h"
#include "planner/program/pass_piece.h"
#include "planner/program/reshard.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kElement = 2;  // bytes of bf16
/// Memory traffic of an optimizer step, bytes an element: gradient, master parameter and both
/// moments read, master and moments written, all fp32.
constexpr std::int64_t kStepBytes = 7 * 4;
constexpr std::int64_t kNormBytes = 4;

using enum OperationPart;
using enum OperationPass;

std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

/// Writes the operations of one stage and micro-batch.
class Expansion {
 public:
  Expansion(const Program& program, const ModelSpec& model, int stage, int chunk,
            const PassPiece& piece, const MicroBatch& batch)
      : model_(model),
        stage_(program.stages[stage]),
        layers_(piece.layers),
        has_embedding_(stage_.has_embedding && chunk == 0 && piece.starts_run),
        has_head_(stage_.has_head && chunk + 1 == chunks_of(stage_) && piece.ends_run),
        scheme_(program.pipelines[stage_.pipeline].scheme),
        batch_(batch),
        tokens_(divide_up(static_cast<std::int64_t>(batch.tokens() + batch.padding), scheme_.cp)),
        heads_(divide_up(model.heads, scheme_.tp)),
        kv_heads_(divide_up(model.kv_heads, scheme_.tp)),
        ffn_(divide_up(model.ffn_hidden, scheme_.tp)),
        vocab_(divide_up(model.vocab, scheme_.tp)) {}

  std::vector<Operation> take() { return std::move(operations_); }

  void forward_stage() {
    if (has_embedding_) embed(forward);
    for (layer_ = layers_.begin; layer_ < layers_.end; ++layer_) {
      forward_layer(forward);
    }
    layer_ = model_.layers;
    if (has_head_) forward_head();
  }

  void recompute_stage() {
    for (layer_ = layers_.begin; layer_ < layers_.end; ++layer_) {
      forward_layer(recompute);
    }
  }

  void backward_stage(bool inputs, bool weights) {
    layer_ = model_.layers;
    if (has_head_) backward_head(inputs, weights);
    for (layer_ = layers_.end - 1; layer_ >= layers_.begin; --layer_) {
      if (inputs && scheme_.recompute == Recompute::full) forward_layer(recompute);
      if (inputs && scheme_.recompute == Recompute::selective) recompute_cheap_parts();
      backward_layer(inputs, weights);
    }
    if (has_embedding_ && weights) embed(backward_weight);
  }

 private:
  Operation& add(OperationKind kind, OperationPart part, OperationPass pass, int step = 0) {
    Operation operation;
    operation.kind = kind;
    operation.part = part;
    operation.pass = pass;
    operation.layer = layer_;
    operation.step = step;
    operation.id = (static_cast<std::uint64_t>(layer_ + 1) << 24) |
                   (static_cast<std::uint64_t>(part) << 18) |
                   (static_cast<std::uint64_t>(pass) << 16) | static_cast<std::uint64_t>(step);
    operations_.push_back(std::move(operation));
    return operations_.back();
  }

  void gemm(OperationPart part, OperationPass pass, std::int64_t m, std::int64_t n,
            std::int64_t k) {
    Operation& operation = add(OperationKind::gemm, part, pass);
    operation.m = m;
    operation.n = n;
    operation.k = k;
    operation.flops =
        2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    operation.bytes = kElement * (m * k + k * n + m * n);
  }

  /// Gradients of y = x·w with y [tokens × outputs], x [tokens × inputs].
  void gemm_gradients(OperationPart part, std::int64_t outputs, std::int64_t inputs, bool of_inputs,
                      bool of_weights) {
    if (of_inputs) gemm(part, backward_input, tokens_, inputs, outputs);
    if (of_weights) gemm(part, backward_weight, outputs, inputs, tokens_);
  }

  void element_wise(OperationPart part, OperationPass pass, std::int64_t elements) {
    add(OperationKind::element_wise, part, pass).bytes = elements * kElement;
  }

  /// Tensor-parallel collective over the activations between layers.
  void tensor_collective(OperationKind kind, OperationPart part, OperationPass pass) {
    if (scheme_.tp == 1) return;
    Operation& operation = add(kind, part, pass);
    operation.group = OperationGroup::tensor;
    operation.group_size = scheme_.tp;
    operation.stream = StreamKind::collective;
    operation.bytes = tokens_ * model_.hidden * kElement;
  }
  void gather(OperationPart part, OperationPass pass) {
    tensor_collective(OperationKind::all_gather, part, pass);
  }
  void scatter(OperationPart part, OperationPass pass) {
    tensor_collective(OperationKind::reduce_scatter, part, pass);
  }

  /// Elements of the hidden state on this device between layers.
  std::int64_t shard() const { return divide_up(tokens_, scheme_.tp) * model_.hidden; }
  std::int64_t qkv_columns() const { return (heads_ + 2 * kv_heads_) * model_.head_dim; }

  void embed(OperationPass pass) {
    layer_ = kEmbeddingLayer;
    if (pass != forward) gather(embedding_collective, pass);
    add(OperationKind::embedding, embedding, pass).bytes = 2 * tokens_ * model_.hidden * kElement;
    if (pass == forward) scatter(embedding_collective, pass);
  }

  /// Attention in cp ring steps; each but the last also passes keys and values on. The backward
  /// costs twice the forward's products and passes the gradients of keys and values along.
  void attend(OperationPass pass) {
    const bool is_backward = pass == backward_input;
    const double share = 1.0 / (static_cast<double>(scheme_.cp) * scheme_.cp);
    for (int step = 0; step < scheme_.cp; ++step) {
      const bool passes_on = is_backward ? scheme_.cp > 1 : step + 1 < scheme_.cp;
      if (passes_on) {
        Operation& ring = add(OperationKind::ring_exchange, attention_ring, pass, step);
        ring.group = OperationGroup::context;
        ring.group_size = scheme_.cp;
        ring.stream = StreamKind::collective;
        ring.bytes = (is_backward ? 4 : 2) * tokens_ * kv_heads_ * model_.head_dim * kElement;
      }
      Operation& operation = add(OperationKind::attention, attention, pass, step);
      operation.sum_squares = batch_.sum_squares() * share;
      operation.lengths = batch_.lengths;
      operation.flops = (is_backward ? 4.0 : 2.0) * operation.sum_squares *
                        static_cast<double>(heads_ * model_.head_dim);
      operation.bytes = 2 * tokens_ * (heads_ + kv_heads_) * model_.head_dim * kElement;
    }
  }

  void forward_layer(OperationPass pass) {
    element_wise(attention_norm, pass, 2 * shard());
    gather(query_key_value_collective, pass);
    gemm(query_key_value, pass, tokens_, qkv_columns(), model_.hidden);
    element_wise(rotary, pass, 2 * tokens_ * (heads_ + kv_heads_) * model_.head_dim);
    attend(pass);
    gemm(attention_output, pass, tokens_, model_.hidden, heads_ * model_.head_dim);
    scatter(attention_output_collective, pass);
    element_wise(mlp_norm, pass, 4 * shard());  // with the residual sum: two read, two written
    gather(gate_up_collective, pass);
    gemm(gate_up, pass, tokens_, 2 * ffn_, model_.hidden);
    element_wise(swiglu, pass, 3 * tokens_ * ffn_);
    gemm(down, pass, tokens_, model_.hidden, ffn_);
    scatter(down_collective, pass);
    element_wise(residual, pass, 3 * shard());
  }

  void recompute_cheap_parts() {
    element_wise(attention_norm, recompute, 2 * shard());
    element_wise(mlp_norm, recompute, 2 * shard());
    element_wise(swiglu, recompute, 3 * tokens_ * ffn_);
  }

  void backward_layer(bool inputs, bool weights) {
    const std::int64_t hidden = model_.hidden;
    if (inputs) gather(down_collective, backward_input);
    gemm_gradients(down, hidden, ffn_, inputs, weights);
    if (inputs) element_wise(swiglu, backward_input, 5 * tokens_ * ffn_);
    if (weights) gather(gate_up_collective, backward_weight);
    gemm_gradients(gate_up, 2 * ffn_, hidden, inputs, weights);
    if (inputs) {
      scatter(gate_up_collective, backward_input);
      element_wise(mlp_norm, backward_input, 5 * shard());
      gather(attention_output_collective, backward_input);
    }
    gemm_gradients(attention_output, hidden, heads_ * model_.head_dim, inputs, weights);
    if (inputs) {
      attend(backward_input);
      element_wise(rotary, backward_input, 2 * tokens_ * (heads_ + kv_heads_) * model_.head_dim);
    }
    if (weights) gather(query_key_value_collective, backward_weight);
    gemm_gradients(query_key_value, qkv_columns(), hidden, inputs, weights);
    if (inputs) {
      scatter(query_key_value_collective, backward_input);
      element_wise(attention_norm, backward_input, 5 * shard());
    }
  }

  void forward_head() {
    element_wise(final_norm, forward, 2 * shard());
    gather(head_collective, forward);
    gemm(head, forward, tokens_, vocab_, model_.hidden);
    add(OperationKind::cross_entropy, cross_entropy, forward).bytes = tokens_ * vocab_ * kElement;
  }

  void backward_head(bool inputs, bool weights) {
    if (inputs) {
      add(OperationKind::cross_entropy, cross_entropy, backward_input).bytes =
          2 * tokens_ * vocab_ * kElement;
    }
    if (weights) gather(head_collective, backward_weight);
    gemm_gradients(head, vocab_, model_.hidden, inputs, weights);
    if (inputs) {
      scatter(head_collective, backward_input);
      element_wise(final_norm, backward_input, 3 * shard());
    }
  }

  const ModelSpec& model_;
  const Stage& stage_;
  LayerRange layers_;
  bool has_embedding_;
  bool has_head_;
  const Scheme& scheme_;
  const MicroBatch& batch_;
  std::int64_t tokens_;  ///< of this device, padding included
  std::int64_t heads_;   ///< of this device, as are the next three
  std::int64_t kv_heads_;
  std::int64_t ffn_;
  std::int64_t vocab_;
  int layer_ = 0;
  std::vector<Operation> operations_;
};

/// Instructions that are one operation.
Operation single(const Program& program, const ModelSpec& model, const Instruction& instruction) {
  Operation operation;
  operation.part = whole_instruction;
  operation.stream = instruction.stream;
  operation.layer = instruction.layer_begin;
  operation.bytes = instruction.intra_node_bytes + instruction.inter_node_bytes;
  switch (instruction.op) {
    case Op::gather_parameters:
    case Op::reduce_gradients:
      operation.kind = OperationKind::reshard;
      operation.group = OperationGroup::all;
      operation.group_size = program.devices;
      break;
    case Op::gradient_norm:
    case Op::barrier:
      operation.kind = OperationKind::all_reduce;
      operation.group = OperationGroup::all;
      operation.group_size = program.devices;
      operation.bytes = kNormBytes;
      break;
    case Op::optimizer_step:
      operation.kind = OperationKind::element_wise;
      operation.bytes = divide_up(parameter_count(model), program.optimizer.devices()) * kStepBytes;
      break;
    case Op::all_to_all:
    case Op::offload:
    case Op::fetch:
    default:
      operation.kind = OperationKind::point_to_point;
      break;
  }
  return operation;
}

}  // namespace

std::vector<Operation> expand(const Program& program, const ModelSpec& model, int stage,
                              int instruction) {
  if (stage < 0 || stage >= static_cast<int>(program.stages.size()) || instruction < 0 ||
      instruction >= static_cast<int>(program.stages[stage].instructions.size())) {
    throw InputError("expand: the program has no instruction {} on a stage {}", instruction, stage);
  }
  const Instruction& what = program.stages[stage].instructions[instruction];
  const PipelineProgram& pipeline = program.pipelines.at(program.stages[stage].pipeline);
  const bool is_compute = what.op == Op::forward || what.op == Op::backward ||
                          what.op == Op::backward_input || what.op == Op::backward_weight ||
                          what.op == Op::recompute;
  if (!is_compute) return {single(program, model, what)};
  if (what.micro_batch < 0 || what.micro_batch >= static_cast<int>(pipeline.micro_batches.size())) {
    throw InputError("expand: instruction {} of stage {} names micro-batch {}, the pipeline has {}",
                     instruction, stage, what.micro_batch, pipeline.micro_batches.size());
  }
  if (what.chunk < 0 || what.chunk >= chunks_of(program.stages[stage])) {
    throw InputError("expand: instruction {} of stage {} names run {} of its layers, it has {}",
                     instruction, stage, what.chunk, chunks_of(program.stages[stage]));
  }
  Expansion expansion(program, model, stage, what.chunk, piece_of(program.stages[stage], what),
                      pipeline.micro_batches[what.micro_batch]);
  if (what.op == Op::forward) {
    expansion.forward_stage();
  } else if (what.op == Op::recompute) {
    expansion.recompute_stage();
  } else {
    expansion.backward_stage(what.op != Op::backward_weight, what.op != Op::backward_input);
  }
  return expansion.take();
}

}  // namespace hydraulis
