#include "planner/program/lower.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "planner/program/placement.h"
#include "planner/program/reshard.h"
#include "planner/program/schedule_order.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kActivationBytes = 2;  // bf16
constexpr std::int64_t kNormBytes = 4;        // one fp32 sum of squares
/// Received activations (or gradients) that wait for their turn while one is being used.
constexpr int kReceiveSlots = 2;

int messages_of_doubling(int members) {
  int messages = 0;
  for (std::int64_t reached = 1; reached < members; reached *= 2) ++messages;
  return messages;
}

/// Writes the instruction stream of one stage.
class StageWriter {
 public:
  StageWriter(const CostModel& model, const Program& program, const PipelineProgram& pipeline,
              int stage_index)
      : model_(model), program_(program), pipeline_(pipeline), global_(stage_index) {}

  std::vector<Instruction> write(const Schedule schedule,
                                 const std::vector<std::pair<int, ReshardSummary>>& layers) {
    reshard(Op::gather_parameters, layers, -1);
    last_gather_ = static_cast<int>(instructions_.size()) - 1;
    const int micro_batches = static_cast<int>(pipeline_.micro_batches.size());
    forwards_.assign(micro_batches, -1);
    backwards_.assign(micro_batches, -1);
    const Stage& stage = program_.stages[global_];
    const int stages = pipeline_.scheme.pp;
    int last_compute = -1;
    for (const ComputeStep& step : schedule_order(schedule, stages, stage.index, micro_batches)) {
      if (step.is_forward) {
        last_compute = forward(step.micro_batch, stage.index > 0, stage.index + 1 < stages);
      } else {
        last_compute = backward(step.micro_batch, stage.index + 1 < stages, stage.index > 0);
      }
    }
    // The last layers' gradients are complete first, so they leave first.
    std::vector<std::pair<int, ReshardSummary>> reversed(layers.rbegin(), layers.rend());
    reshard(Op::reduce_gradients, reversed, last_compute);
    norm_and_step();
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

  Instruction over_layers(Op op, StreamKind stream, int micro_batch = -1) const {
    Instruction instruction = make(op, stream, micro_batch);
    instruction.layer_begin = program_.stages[global_].layer_begin;
    instruction.layer_end = program_.stages[global_].layer_end;
    return instruction;
  }

  /// One instruction a layer. They follow one another on their stream, so only the first names
  /// what all of them wait for.
  void reshard(Op op, const std::vector<std::pair<int, ReshardSummary>>& layers, int after) {
    for (const auto& [layer, summary] : layers) {
      Instruction instruction = make(op, StreamKind::parameters);
      instruction.layer_begin = layer;
      instruction.layer_end = layer + 1;
      instruction.intra_node_bytes = summary.intra_node_bytes;
      instruction.inter_node_bytes = summary.inter_node_bytes;
      instruction.transfers = summary.messages;
      if (after >= 0) instruction.depends_on.push_back(std::exchange(after, -1));
      add(std::move(instruction));
    }
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
    const std::vector<int>& here = program_.stages[global_].devices;
    const std::vector<int>& there = program_.stages[peer].devices;
    bool crosses = false;
    for (std::size_t i = 0; i < here.size(); ++i) {
      crosses |= here[i] / program_.devices_per_node != there[i] / program_.devices_per_node;
    }
    (crosses ? instruction.inter_node_bytes : instruction.intra_node_bytes) = bytes;
    instruction.transfers = 1;
    return instruction;
  }

  /// `used` holds the compute instructions by micro-batch: a receive waits until the one whose
  /// input lay in its slot is done, which bounds what a fast sender can pile up here.
  int receive(Op op, StreamKind stream, int micro_batch, int peer, const std::vector<int>& used) {
    Instruction instruction = transfer(op, stream, micro_batch, peer);
    const int freed_by = micro_batch - kReceiveSlots;
    if (freed_by >= 0) instruction.depends_on.push_back(used[freed_by]);
    return add(std::move(instruction));
  }

  int forward(int micro_batch, bool receives, bool sends) {
    Instruction instruction = over_layers(Op::forward, StreamKind::compute, micro_batch);
    if (micro_batch == 0) instruction.depends_on.push_back(last_gather_);
    if (receives) {
      instruction.depends_on.push_back(receive(Op::receive_activation,
                                               StreamKind::activation_receive, micro_batch,
                                               global_ - 1, forwards_));
    }
    const int index = forwards_[micro_batch] = add(std::move(instruction));
    if (sends) {
      Instruction send =
          transfer(Op::send_activation, StreamKind::activation_send, micro_batch, global_ + 1);
      send.depends_on.push_back(index);
      add(std::move(send));
    }
    return index;
  }

  int backward(int micro_batch, bool receives, bool sends) {
    Instruction instruction = over_layers(Op::backward, StreamKind::compute, micro_batch);
    instruction.depends_on.push_back(forwards_[micro_batch]);
    if (receives) {
      instruction.depends_on.push_back(receive(Op::receive_gradient, StreamKind::gradient_receive,
                                               micro_batch, global_ + 1, backwards_));
    }
    const int index = backwards_[micro_batch] = add(std::move(instruction));
    if (sends) {
      Instruction send =
          transfer(Op::send_gradient, StreamKind::gradient_send, micro_batch, global_ - 1);
      send.depends_on.push_back(index);
      add(std::move(send));
    }
    return index;
  }

  void norm_and_step() {
    Instruction norm = make(Op::gradient_norm, StreamKind::collective);
    const int near = messages_of_doubling(std::min(program_.devices, program_.devices_per_node));
    const int far = messages_of_doubling((program_.devices + program_.devices_per_node - 1) /
                                         program_.devices_per_node);
    norm.intra_node_bytes = near * kNormBytes;
    norm.inter_node_bytes = far * kNormBytes;
    norm.transfers = near + far;
    norm.depends_on.push_back(static_cast<int>(instructions_.size()) - 1);
    const int norm_index = add(std::move(norm));
    Instruction step = over_layers(Op::optimizer_step, StreamKind::compute);
    step.depends_on.push_back(norm_index);
    add(std::move(step));
  }

  const CostModel& model_;
  const Program& program_;
  const PipelineProgram& pipeline_;
  int global_;
  int last_gather_ = -1;
  std::vector<int> forwards_;
  std::vector<int> backwards_;
  std::vector<Instruction> instructions_;
};

void check(const BatchPlan& plan, const CostModel& model) {
  if (plan.pipelines.empty()) throw InputError("lowering: the plan has no pipelines");
  if (model.model.layers < 1) throw InputError("lowering: the model has no layers");
  const OptimizerLayout& optimizer = model.optimizer;
  if (optimizer.dp < 1 || optimizer.tp < 1 || optimizer.pp < 1) {
    throw InputError("optimizer layout: dp, tp and pp must be at least 1, not dp{} tp{} pp{}",
                     optimizer.dp, optimizer.tp, optimizer.pp);
  }
  const std::int64_t wanted = static_cast<std::int64_t>(optimizer.dp) * optimizer.tp * optimizer.pp;
  if (wanted > model.cluster.devices()) {
    throw InfeasibleError(
        "the optimizer layout dp{} tp{} pp{} needs {} devices, {} more than the cluster's {}",
        optimizer.dp, optimizer.tp, optimizer.pp, wanted, wanted - model.cluster.devices(),
        model.cluster.devices());
  }
}

}  // namespace

Program lower(const BatchPlan& plan, const CostModel& model, const LowerOptions& options) {
  check(plan, model);
  std::vector<Scheme> schemes;
  for (const PipelinePlan& pipeline : plan.pipelines) schemes.push_back(pipeline.scheme);
  const Placement placement = place(schemes, model.cluster.nodes, model.cluster.devices_per_node);

  Program program;
  program.model_name = model.model.name;
  program.layers = model.model.layers;
  program.devices = model.cluster.devices();
  program.devices_per_node = model.cluster.devices_per_node;
  program.optimizer = model.optimizer;
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const Scheme& scheme = schemes[p];
    const std::vector<int> layers = stage_layers(scheme, model.model.layers);
    program.pipelines.push_back(
        {scheme, plan.pipelines[p].micro_batches, static_cast<int>(program.stages.size())});
    int layer = 0;
    for (int s = 0; s < scheme.pp; ++s) {
      Stage stage;
      stage.pipeline = static_cast<int>(p);
      stage.index = s;
      stage.devices = placement[p][s];
      stage.layer_begin = layer;
      layer += layers[s];
      stage.layer_end = layer;
      stage.has_embedding = s == 0;
      stage.has_head = s + 1 == scheme.pp;
      program.stages.push_back(std::move(stage));
    }
  }

  GatherPlanner gather(model.model, model.optimizer, model.cluster.devices_per_node);
  for (std::size_t i = 0; i < program.stages.size(); ++i) {
    Stage& stage = program.stages[i];
    const PipelineProgram& pipeline = program.pipelines[stage.pipeline];
    StageWriter writer(model, program, pipeline, static_cast<int>(i));
    stage.instructions =
        writer.write(options.schedule, gather.stage_summaries(stage, pipeline.scheme.tp));
  }
  return program;
}

}  // namespace hydraulis
