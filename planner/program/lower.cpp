#include "planner/program/lower.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "planner/program/lower_sharded.h"
#include "planner/program/phases.h"
#include "planner/program/placement.h"
#include "planner/program/reshard.h"
#include "planner/program/schedule_order.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kActivationBytes = 2;  // bf16
/// Received activations (or gradients) that wait for their turn while one is being used.
constexpr int kReceiveSlots = 2;

/// Writes the instruction stream of one stage.
class StageWriter {
 public:
  StageWriter(const CostModel& model, const Program& program, const PipelineProgram& pipeline,
              int stage_index)
      : model_(model), program_(program), pipeline_(pipeline), global_(stage_index) {}

  std::vector<Instruction> write(const Schedule schedule, const StageTraffic& traffic, int phases) {
    for (int phase = 0; phase < pipeline_.phase; ++phase) add(make_barrier());
    const int entered = static_cast<int>(instructions_.size()) - 1;
    reshard(Op::gather_parameters, traffic.gather, entered);
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
    reshard(Op::reduce_gradients, traffic.reduce, last_compute);
    for (int phase = pipeline_.phase + 1; phase < phases; ++phase) {
      Instruction barrier = make_barrier();
      barrier.depends_on.push_back(static_cast<int>(instructions_.size()) - 1);
      add(std::move(barrier));
    }
    norm_and_step(pipeline_.phase + 1 == phases);
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

  Instruction make_barrier() const { return make(Op::barrier, StreamKind::collective); }

  /// They follow one another on their stream, so only the first names what all of them wait for.
  void reshard(Op op, const std::vector<LayerTraffic>& layers, int after) {
    for (const auto& [begin, end, summary] : layers) {
      Instruction instruction = make(op, StreamKind::parameters);
      instruction.layer_begin = begin;
      instruction.layer_end = end;
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

  void norm_and_step(bool steps) {
    Instruction norm = make_norm(program_);
    norm.depends_on.push_back(static_cast<int>(instructions_.size()) - 1);
    const int norm_index = add(std::move(norm));
    if (!steps) return;
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
  int phase = 0;
  for (const PipelinePlan& pipeline : plan.pipelines) {
    if (pipeline.phase < phase || pipeline.phase > phase + 1 ||
        (&pipeline == &plan.pipelines.front() && pipeline.phase != 0)) {
      throw InputError(
          "lowering: a pipeline of phase {} follows one of phase {}, expected {} or {}",
          pipeline.phase, phase, phase, phase + 1);
    }
    phase = pipeline.phase;
    const Scheme& scheme = pipeline.scheme;
    if (model.sharding == ParameterSharding::sharded && scheme.tp * scheme.pp != 1) {
      throw InputError("lowering: sharded parameters need tp 1 and pp 1, not the scheme {}",
                       to_string(scheme));
    }
  }
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
  Program program;
  program.model_name = model.model.name;
  program.layers = model.model.layers;
  program.devices = model.cluster.devices();
  program.devices_per_node = model.cluster.devices_per_node;
  program.optimizer = model.optimizer;
  program.sharding = model.sharding;
  const Placement placement = place_phases(plan, model.cluster);
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const Scheme& scheme = plan.pipelines[p].scheme;
    const std::vector<int> layers = stage_layers(scheme, model.model.layers);
    program.pipelines.push_back({scheme, plan.pipelines[p].micro_batches,
                                 static_cast<int>(program.stages.size()), plan.pipelines[p].phase});
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

  if (model.sharding == ParameterSharding::sharded) {
    write_sharded_streams(program, model);
    return program;
  }
  PhaseTraffic traffic(program, model.model);
  for (std::size_t i = 0; i < program.stages.size(); ++i) {
    Stage& stage = program.stages[i];
    StageWriter writer(model, program, program.pipelines[stage.pipeline], static_cast<int>(i));
    stage.instructions =
        writer.write(options.schedule, traffic.of(static_cast<int>(i)), plan.phases());
  }
  return program;
}

}  // namespace hydraulis
