#include "planner/program/lower.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "planner/program/lower_sharded.h"
#include "planner/program/phases.h"
#include "planner/program/placement.h"
#include "planner/program/reshard.h"
#include "planner/schedule_order.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kActivationBytes = 2;  // bf16
/// Received activations (or gradients) that wait for their turn while one is being used.
constexpr std::size_t kReceiveSlots = 2;

/// Writes the instruction stream of one stage.
class StageWriter {
 public:
  StageWriter(const CostModel& model, const Program& program, const PipelineProgram& pipeline,
              int stage_index)
      : model_(model), program_(program), pipeline_(pipeline), global_(stage_index) {}

  std::vector<Instruction> write(const std::vector<ComputeStep>& steps, const StageTraffic& traffic,
                                 int phases) {
    for (int phase = 0; phase < pipeline_.phase; ++phase) add(make_barrier());
    const int entered = static_cast<int>(instructions_.size()) - 1;
    reshard(Op::gather_parameters, traffic.gather, entered);
    last_gather_ = static_cast<int>(instructions_.size()) - 1;
    const auto virtual_batches = pipeline_.micro_batches.size() *
                                 static_cast<std::size_t>(chunks_of(program_.stages[global_]));
    forwards_.assign(virtual_batches, -1);
    backwards_.assign(virtual_batches, -1);
    int last_compute = -1;
    for (const ComputeStep& step : steps) last_compute = compute(step, last_compute < 0);
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

  Instruction over_layers(Op op, int micro_batch = -1, int chunk = 0) const {
    Instruction instruction = make(op, StreamKind::compute, micro_batch);
    const LayerRange layers = layers_of(program_.stages[global_], chunk);
    instruction.chunk = chunk;
    instruction.layer_begin = layers.begin;
    instruction.layer_end = layers.end;
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

  /// Stage of the virtual stage after (1) or before (-1) that of a chunk, or -1 at the ends.
  int neighbour(int chunk, int direction) const {
    const int stages = pipeline_.scheme.pp;
    const Stage& stage = program_.stages[global_];
    const int there = chunk * stages + stage.index + direction;
    if (there < 0 || there >= stages * chunks_of(stage)) return -1;
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

  int compute(const ComputeStep& step, bool first) {
    const auto batch = static_cast<std::size_t>(step.chunk) * pipeline_.micro_batches.size() +
                       static_cast<std::size_t>(step.micro_batch);
    switch (step.pass) {
      case Pass::forward:
        return forwards_[batch] = forward(step, first);
      case Pass::backward_weight: {
        Instruction instruction = over_layers(Op::backward_weight, step.micro_batch, step.chunk);
        instruction.depends_on.push_back(backwards_[batch]);
        return add(std::move(instruction));
      }
      default:
        return backwards_[batch] = backward(step, forwards_[batch]);
    }
  }

  int forward(const ComputeStep& step, bool first) {
    Instruction instruction = over_layers(Op::forward, step.micro_batch, step.chunk);
    if (first) instruction.depends_on.push_back(last_gather_);
    const int from = neighbour(step.chunk, -1);
    if (from >= 0) {
      instruction.depends_on.push_back(receive(
          Op::receive_activation, StreamKind::activation_receive, step, from, fed_forwards_));
    }
    const int index = add(std::move(instruction));
    if (from >= 0) fed_forwards_.push_back(index);
    send(Op::send_activation, StreamKind::activation_send, step, neighbour(step.chunk, 1), index);
    return index;
  }

  int backward(const ComputeStep& step, int forward) {
    Instruction instruction =
        over_layers(step.pass == Pass::backward ? Op::backward : Op::backward_input,
                    step.micro_batch, step.chunk);
    instruction.depends_on.push_back(forward);
    const int from = neighbour(step.chunk, 1);
    if (from >= 0) {
      instruction.depends_on.push_back(
          receive(Op::receive_gradient, StreamKind::gradient_receive, step, from, fed_backwards_));
    }
    const int index = add(std::move(instruction));
    if (from >= 0) fed_backwards_.push_back(index);
    send(Op::send_gradient, StreamKind::gradient_send, step, neighbour(step.chunk, -1), index);
    return index;
  }

  void norm_and_step(bool steps) {
    Instruction norm = make_norm(program_);
    norm.depends_on.push_back(static_cast<int>(instructions_.size()) - 1);
    const int norm_index = add(std::move(norm));
    if (!steps) return;
    Instruction step = over_layers(Op::optimizer_step);
    step.depends_on.push_back(norm_index);
    add(std::move(step));
  }

  const CostModel& model_;
  const Program& program_;
  const PipelineProgram& pipeline_;
  int global_;
  int last_gather_ = -1;
  std::vector<int> forwards_;       ///< [chunk · micro-batches + micro-batch]
  std::vector<int> backwards_;      ///< the same
  std::vector<int> fed_forwards_;   ///< those with a receive, in order
  std::vector<int> fed_backwards_;  ///< the same
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

/// The compute streams of a pipeline's stages; only schedules that look at times need a profile.
StageSteps steps_of(const PipelineProgram& pipeline, const CostModel& model,
                    const ScheduleChoice& choice) {
  if (needs_times(choice.schedule)) {
    return schedule_steps(choice,
                          schedule_work(model, pipeline.scheme, pipeline.micro_batches, choice));
  }
  StageSteps steps;
  for (int stage = 0; stage < pipeline.scheme.pp; ++stage) {
    steps.push_back(schedule_order(choice, pipeline.scheme.pp, stage,
                                   static_cast<int>(pipeline.micro_batches.size())));
  }
  return steps;
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
    const ScheduleChoice choice = on_scheme(options, scheme);
    if (choice.chunks > 1 && plan.phases() > 1) {
      throw InputError("schedule {}: not over an iteration of several phases", to_string(choice));
    }
    const std::vector<int> layers = virtual_stage_layers(scheme, model.model.layers, choice.chunks);
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
    for (std::size_t v = static_cast<std::size_t>(scheme.pp); v < layers.size(); ++v) {
      const auto s = program.stages.size() - static_cast<std::size_t>(scheme.pp) +
                     v % static_cast<std::size_t>(scheme.pp);
      program.stages[s].more_layers.push_back({layer, layer + layers[v]});
      layer += layers[v];
    }
  }

  if (model.sharding == ParameterSharding::sharded) {
    write_sharded_streams(program, model);
    return program;
  }
  PhaseTraffic traffic(program, model.model);
  StageSteps steps;
  for (std::size_t i = 0; i < program.stages.size(); ++i) {
    Stage& stage = program.stages[i];
    const PipelineProgram& pipeline = program.pipelines[stage.pipeline];
    if (stage.index == 0) steps = steps_of(pipeline, model, on_scheme(options, pipeline.scheme));
    StageWriter writer(model, program, pipeline, static_cast<int>(i));
    stage.instructions = writer.write(steps[static_cast<std::size_t>(stage.index)],
                                      traffic.of(static_cast<int>(i)), plan.phases());
  }
  return program;
}

}  // namespace hydraulis
