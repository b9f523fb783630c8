#include "planner/program/lower_stage.h"

#include <algorithm>
#include <utility>

#include "planner/program/lower_sharded.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kActivationBytes = 2;  // bf16
/// Received activations (or gradients) that wait for their turn while one is being used.
constexpr std::size_t kReceiveSlots = 2;

bool meet(const LayerRange& left, const LayerRange& right) {
  return left.begin < right.end && right.begin < left.end;
}

LayerRange range_of(const LayerTraffic& traffic) {
  return {traffic.layer_begin, traffic.layer_end};
}

/// Layers and the instruction that moved or computed them.
struct Done {
  LayerRange layers;
  int instruction = -1;
};

/// Latest instruction that had to do with any of the layers, or -1.
int latest(const std::vector<Done>& done, const LayerRange& layers) {
  int index = -1;
  for (const Done& one : done) {
    if (meet(one.layers, layers)) index = std::max(index, one.instruction);
  }
  return index;
}

class StageWriter {
 public:
  StageWriter(const Program& program, const CostModel& model, int stage, const StageWork& work)
      : program_(program),
        model_(model),
        stage_(program.stages[stage]),
        pipeline_(program.pipelines[stage_.pipeline]),
        work_(work),
        chunks_(chunks_of(stage_)) {}

  std::vector<Instruction> write() {
    for (int phase = 0; phase < pipeline_.phase; ++phase) add(make_barrier());
    int entered = static_cast<int>(instructions_.size()) - 1;
    // They follow one another on their stream, so only the first names what all of them wait for.
    for (const LayerTraffic& traffic : work_.traffic.gather) {
      Instruction gather = reshard(Op::gather_parameters, traffic);
      if (entered >= 0) gather.depends_on.push_back(std::exchange(entered, -1));
      gathered_.push_back({range_of(traffic), add(std::move(gather))});
    }
    compute_all();
    reduce_all();
    for (int phase = pipeline_.phase + 1; phase < work_.phases; ++phase) {
      Instruction barrier = make_barrier();
      barrier.depends_on.push_back(static_cast<int>(instructions_.size()) - 1);
      add(std::move(barrier));
    }
    norm_and_step(pipeline_.phase + 1 == work_.phases);
    return std::move(instructions_);
  }

 private:
  int add(Instruction instruction) {
    instructions_.push_back(std::move(instruction));
    return static_cast<int>(instructions_.size()) - 1;
  }

  Instruction make(Op op, StreamKind stream, int micro_batch = -1) const {
    Instruction instruction;
    instruction.op = op;
    instruction.stream = stream;
    instruction.micro_batch = micro_batch;
    return instruction;
  }

  Instruction over_layers(Op op, const LayerRange& layers, int micro_batch = -1,
                          int chunk = 0) const {
    Instruction instruction = make(op, StreamKind::compute, micro_batch);
    instruction.chunk = chunk;
    instruction.layer_begin = layers.begin;
    instruction.layer_end = layers.end;
    return instruction;
  }

  Instruction make_barrier() const { return make(Op::barrier, StreamKind::collective); }

  Instruction reshard(Op op, const LayerTraffic& traffic) const {
    Instruction instruction = make(op, StreamKind::parameters);
    instruction.layer_begin = traffic.layer_begin;
    instruction.layer_end = traffic.layer_end;
    instruction.intra_node_bytes = traffic.summary.intra_node_bytes;
    instruction.inter_node_bytes = traffic.summary.inter_node_bytes;
    instruction.transfers = traffic.summary.messages;
    return instruction;
  }

  /// A send or receive; with sequence parallelism each device moves its own 1/tp of the tokens.
  Instruction transfer(Op op, StreamKind stream, int micro_batch, int peer) const {
    Instruction instruction = make(op, stream, micro_batch);
    instruction.peer = peer;
    const MicroBatch& batch = pipeline_.micro_batches[micro_batch];
    const std::int64_t shares = pipeline_.scheme.cp * pipeline_.scheme.tp;
    const auto tokens = static_cast<std::int64_t>(batch.tokens() + batch.padding);
    const std::int64_t bytes =
        (tokens + shares - 1) / shares * model_.model.hidden * kActivationBytes;
    const std::vector<int>& here = stage_.devices;
    const std::vector<int>& there = program_.stages[peer].devices;
    bool crosses = false;
    for (std::size_t i = 0; i < here.size(); ++i) {
      crosses |= here[i] / program_.devices_per_node != there[i] / program_.devices_per_node;
    }
    (crosses ? instruction.inter_node_bytes : instruction.intra_node_bytes) = bytes;
    instruction.transfers = 1;
    return instruction;
  }

  /// Stage of the virtual stage after (1) or before (-1) that of a chunk, or -1 at the ends.
  int neighbour(int chunk, int direction) const {
    const int stages = pipeline_.scheme.pp;
    const int there = chunk * stages + stage_.index + direction;
    if (there < 0 || there >= stages * chunks_) return -1;
    return pipeline_.first_stage + there % stages;
  }

  /// `users` holds the compute instructions that have used what came this way: a receive waits
  /// until the one whose input lay in its slot is done, which bounds what a fast sender can pile up
  /// here.
  int receive(Op op, StreamKind stream, const ComputeStep& step, int peer,
              const std::vector<int>& users) {
    Instruction instruction = transfer(op, stream, step.micro_batch, peer);
    instruction.chunk = step.chunk;
    if (users.size() >= kReceiveSlots) {
      instruction.depends_on.push_back(users[users.size() - kReceiveSlots]);
    }
    return add(std::move(instruction));
  }

  void send(Op op, StreamKind stream, const ComputeStep& step, int peer, int after) {
    if (peer < 0) return;
    Instruction instruction = transfer(op, stream, step.micro_batch, peer);
    instruction.chunk = step.chunk;
    instruction.depends_on.push_back(after);
    add(std::move(instruction));
  }

  /// With what stands outside the decoder layers, as far as it is computed with them.
  LayerRange with_ends(LayerRange layers, int chunk) const {
    const LayerRange run = layers_of(stage_, chunk);
    if (stage_.has_embedding && chunk == 0 && layers.begin == run.begin) {
      layers.begin = kEmbeddingLayer;
    }
    if (stage_.has_head && chunk + 1 == chunks_ && layers.end == run.end) {
      layers.end = model_.model.layers + 1;
    }
    return layers;
  }

  /// A run of layers, cut where its traffic is when computation and traffic overlap.
  std::vector<LayerRange> pieces(int chunk, const std::vector<LayerTraffic>& traffic) const {
    const LayerRange run = layers_of(stage_, chunk);
    if (work_.overlap == Overlap::off || run.begin >= run.end) return {run};
    std::vector<LayerRange> cut;
    for (const LayerTraffic& one : traffic) {
      const LayerRange part{std::max(run.begin, one.layer_begin), std::min(run.end, one.layer_end)};
      if (part.begin < part.end) cut.push_back(part);
    }
    return cut;
  }

  void compute_all() {
    const auto virtual_batches = pipeline_.micro_batches.size() * static_cast<std::size_t>(chunks_);
    forwards_.assign(virtual_batches, -1);
    backwards_.assign(virtual_batches, -1);
    // Which of the steps is a run's first forward, and its last that adds to gradients.
    std::vector<std::size_t> first(static_cast<std::size_t>(chunks_), work_.steps.size());
    std::vector<std::size_t> last = first;
    for (std::size_t i = 0; i < work_.steps.size(); ++i) {
      const auto chunk = static_cast<std::size_t>(work_.steps[i].chunk);
      if (work_.steps[i].pass == Pass::forward) {
        first[chunk] = std::min(first[chunk], i);
      } else {
        last[chunk] = i;
      }
    }
    for (std::size_t i = 0; i < work_.steps.size(); ++i) {
      const ComputeStep& step = work_.steps[i];
      const auto chunk = static_cast<std::size_t>(step.chunk);
      const auto batch =
          chunk * pipeline_.micro_batches.size() + static_cast<std::size_t>(step.micro_batch);
      if (step.pass == Pass::forward) {
        forwards_[batch] = forward(step, i == first[chunk]);
        continue;
      }
      // Gradients are added up in the order of the stream.
      const std::vector<LayerRange> cut = i == last[chunk]
                                              ? pieces(step.chunk, work_.traffic.reduce)
                                              : std::vector{layers_of(stage_, step.chunk)};
      if (step.pass == Pass::backward_weight) {
        compute(Op::backward_weight, step, cut, {backwards_[batch]});
      } else {
        backwards_[batch] = backward(step, cut, forwards_[batch]);
      }
    }
  }

  /// The pieces of a pass; the first waits for `after`. Returns the last.
  int compute(Op op, const ComputeStep& step, const std::vector<LayerRange>& cut,
              const std::vector<int>& after) {
    int index = -1;
    for (const LayerRange& layers : cut) {
      Instruction instruction = over_layers(op, layers, step.micro_batch, step.chunk);
      if (index < 0) instruction.depends_on = after;
      index = add(std::move(instruction));
      if (op != Op::forward) computed_.push_back({with_ends(layers, step.chunk), index});
    }
    return index;
  }

  int forward(const ComputeStep& step, bool first) {
    const std::vector<LayerRange> cut = first ? pieces(step.chunk, work_.traffic.gather)
                                              : std::vector{layers_of(stage_, step.chunk)};
    std::vector<int> after;
    const bool waits = first && work_.overlap == Overlap::off && forwards_begun_++ == 0;
    if (waits && !gathered_.empty()) after.push_back(gathered_.back().instruction);
    const int from = neighbour(step.chunk, -1);
    if (from >= 0) {
      after.push_back(receive(Op::receive_activation, StreamKind::activation_receive, step, from,
                              fed_forwards_));
    }
    const int index = compute(Op::forward, step, cut, after);
    for (std::size_t i = 0; first && work_.overlap == Overlap::on && i < cut.size(); ++i) {
      const int gather = latest(gathered_, with_ends(cut[i], step.chunk));
      const auto piece = static_cast<std::size_t>(index) + 1 - cut.size() + i;
      if (gather >= 0) instructions_[piece].depends_on.push_back(gather);
    }
    if (from >= 0) fed_forwards_.push_back(index);
    send(Op::send_activation, StreamKind::activation_send, step, neighbour(step.chunk, 1), index);
    return index;
  }

  int backward(const ComputeStep& step, const std::vector<LayerRange>& cut, int forward) {
    std::vector<int> after{forward};
    const int from = neighbour(step.chunk, 1);
    if (from >= 0) {
      after.push_back(
          receive(Op::receive_gradient, StreamKind::gradient_receive, step, from, fed_backwards_));
    }
    const Op op = step.pass == Pass::backward ? Op::backward : Op::backward_input;
    const int index = compute(op, step, cut, after);
    if (from >= 0) fed_backwards_.push_back(index);
    send(Op::send_gradient, StreamKind::gradient_send, step, neighbour(step.chunk, -1), index);
    return index;
  }

  void reduce_all() {
    int after = computed_.empty() ? -1 : computed_.back().instruction;
    for (const LayerTraffic& traffic : work_.traffic.reduce) {
      Instruction reduction = reshard(Op::reduce_gradients, traffic);
      if (work_.overlap == Overlap::on) after = latest(computed_, range_of(traffic));
      if (after >= 0) reduction.depends_on.push_back(std::exchange(after, -1));
      add(std::move(reduction));
    }
  }

  void norm_and_step(bool steps) {
    Instruction norm = make_norm(program_);
    norm.depends_on.push_back(static_cast<int>(instructions_.size()) - 1);
    const int norm_index = add(std::move(norm));
    if (!steps) return;
    Instruction step = over_layers(Op::optimizer_step, layers_of(stage_, 0));
    step.depends_on.push_back(norm_index);
    add(std::move(step));
  }

  const Program& program_;
  const CostModel& model_;
  const Stage& stage_;
  const PipelineProgram& pipeline_;
  const StageWork& work_;
  int chunks_;
  int forwards_begun_ = 0;
  std::vector<Done> gathered_;
  std::vector<Done> computed_;      ///< backwards, embedding and head included
  std::vector<int> forwards_;       ///< [chunk · micro-batches + micro-batch]
  std::vector<int> backwards_;      ///< the same
  std::vector<int> fed_forwards_;   ///< those with a receive, in order
  std::vector<int> fed_backwards_;  ///< the same
  std::vector<Instruction> instructions_;
};

}  // namespace

std::vector<Instruction> stage_instructions(const Program& program, const CostModel& model,
                                            int stage, const StageWork& work) {
  return StageWriter(program, model, stage, work).write();
}

}  // namespace hydraulis
