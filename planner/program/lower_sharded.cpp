#include "planner/program/lower_sharded.h"

#include <algorithm>
#include <utility>

#include "planner/program/collectives.h"

namespace hydraulis {
namespace {

constexpr double kElementBytes = 2;     // bf16, as programs count everything that moves
constexpr std::int64_t kNormBytes = 4;  // one fp32 sum of squares

int messages_of_doubling(int members) {
  int messages = 0;
  for (std::int64_t reached = 1; reached < members; reached *= 2) ++messages;
  return messages;
}

double parameters_of(const ModelSpec& model, int layer) {
  if (layer == kEmbeddingLayer) return static_cast<double>(embedding_parameters(model));
  if (layer == model.layers) return static_cast<double>(head_parameters(model));
  return static_cast<double>(layer_parameters(model));
}

class ShardedWriter {
 public:
  ShardedWriter(Program& program, const CostModel& model, int stage)
      : program_(program),
        model_(model),
        stage_(program.stages[stage]),
        pipeline_(program.pipelines[stage_.pipeline]) {}

  /// `steps`: micro-batches of the phase's busiest pipeline; `passes_before` and `passes_after`:
  /// of other phases.
  void write(int steps, int passes_before, int passes_after, bool last_phase) {
    for (int i = 0; i < passes_before; ++i) add(make(Op::barrier, StreamKind::collective));
    const int layers = model_.model.layers;
    for (int step = 0; step < steps; ++step) {
      const bool busy = step < static_cast<int>(pipeline_.micro_batches.size());
      const int micro_batch = busy ? step : -1;
      begin_pass();
      gather(kEmbeddingLayer, 1);
      const int forward = compute(Op::forward, micro_batch);
      gather(1, layers + 1);
      begin_pass();
      gather(layers - 1, layers + 1);
      if (forward >= 0) needed_ = forward;
      const int backward = compute(Op::backward, micro_batch);
      gather(kEmbeddingLayer, layers - 1);
      reduce(1, layers + 1, -1);
      reduce(kEmbeddingLayer, 1, backward);
    }
    const int work = static_cast<int>(stage_.instructions.size()) - 1;
    for (int i = 0; i < passes_after; ++i) {
      Instruction barrier = make(Op::barrier, StreamKind::collective);
      if (i == 0 && work >= 0) barrier.depends_on.push_back(work);
      add(std::move(barrier));
    }
    Instruction norm = make_norm(program_);
    if (!stage_.instructions.empty()) {
      norm.depends_on.push_back(static_cast<int>(stage_.instructions.size()) - 1);
    }
    const int norm_index = add(std::move(norm));
    if (!last_phase) return;
    Instruction step = make(Op::optimizer_step, StreamKind::compute);
    step.layer_begin = stage_.layer_begin;
    step.layer_end = stage_.layer_end;
    step.depends_on.push_back(norm_index);
    add(std::move(step));
  }

 private:
  int add(Instruction instruction) {
    stage_.instructions.push_back(std::move(instruction));
    return static_cast<int>(stage_.instructions.size()) - 1;
  }

  static Instruction make(Op op, StreamKind stream, int micro_batch = -1) {
    Instruction instruction;
    instruction.op = op;
    instruction.stream = stream;
    instruction.micro_batch = micro_batch;
    return instruction;
  }

  /// The collectives of a pass wait for every device's last one.
  void begin_pass() {
    Instruction barrier = make(Op::barrier, StreamKind::collective);
    if (last_compute_ >= 0) barrier.depends_on.push_back(last_compute_);
    if (last_moved_ >= 0) barrier.depends_on.push_back(last_moved_);
    entered_ = add(std::move(barrier));
  }

  Instruction moved(Op op, int begin, int end) const {
    Instruction instruction = make(op, StreamKind::parameters);
    instruction.layer_begin = begin;
    instruction.layer_end = end;
    double bytes = 0;
    for (int layer = begin; layer < end; ++layer) {
      bytes += kElementBytes * parameters_of(model_.model, layer);
    }
    const ReshardSummary traffic = all_gather_traffic(bytes, model_.cluster, end - begin);
    instruction.intra_node_bytes = traffic.intra_node_bytes;
    instruction.inter_node_bytes = traffic.inter_node_bytes;
    instruction.transfers = traffic.messages;
    return instruction;
  }

  void gather(int begin, int end) {
    if (begin >= end) return;
    Instruction instruction = moved(Op::gather_parameters, begin, end);
    instruction.depends_on.push_back(entered_);
    last_moved_ = needed_ = add(std::move(instruction));
  }

  void reduce(int begin, int end, int after) {
    Instruction instruction = moved(Op::reduce_gradients, begin, end);
    instruction.depends_on.push_back(after >= 0 ? after : entered_);
    last_moved_ = add(std::move(instruction));
  }

  /// Four exchanges a layer in each pass (queries, keys, values, output; their gradients; once more
  /// what is computed again), which the computation between them cannot hide.
  int compute(Op op, int micro_batch) {
    const int gathered = last_moved_;
    if (micro_batch < 0) return -1;
    Instruction instruction = make(op, StreamKind::compute, micro_batch);
    instruction.layer_begin = stage_.layer_begin;
    instruction.layer_end = stage_.layer_end;
    instruction.depends_on.push_back(gathered);
    if (needed_ != gathered) instruction.depends_on.push_back(needed_);
    if (pipeline_.scheme.cp > 1 && model_.context_exchange == ContextExchange::all_to_all) {
      instruction.depends_on.push_back(exchange(op, micro_batch, gathered));
    }
    last_compute_ = add(std::move(instruction));
    return last_compute_;
  }

  int exchange(Op pass, int micro_batch, int after) {
    const MicroBatch& batch = pipeline_.micro_batches[micro_batch];
    const double tokens = static_cast<double>(batch.tokens() + batch.padding) / pipeline_.scheme.cp;
    const ModelSpec& model = model_.model;
    // Queries and output have all heads, keys and values their own.
    const double numbers =
        2.0 * tokens * model.head_dim * (model.heads + static_cast<double>(model.kv_heads));
    const bool again = pass == Op::backward && pipeline_.scheme.recompute == Recompute::full;
    const ReshardSummary traffic =
        all_to_all_traffic(numbers / 4 * kElementBytes, stage_.devices, program_.devices_per_node,
                           (again ? 8 : 4) * (stage_.layer_end - stage_.layer_begin));
    Instruction instruction = make(Op::all_to_all, StreamKind::collective, micro_batch);
    instruction.layer_begin = stage_.layer_begin;
    instruction.layer_end = stage_.layer_end;
    instruction.intra_node_bytes = traffic.intra_node_bytes;
    instruction.inter_node_bytes = traffic.inter_node_bytes;
    instruction.transfers = traffic.messages;
    instruction.depends_on.push_back(after);
    return add(std::move(instruction));
  }

  const Program& program_;
  const CostModel& model_;
  Stage& stage_;
  const PipelineProgram& pipeline_;
  int entered_ = -1;     ///< the barrier of the pass
  int last_moved_ = -1;  ///< gather or reduction
  int last_compute_ = -1;
  int needed_ = -1;  ///< by the next computation, beside the gather
};

}  // namespace

Instruction make_norm(const Program& program) {
  Instruction norm;
  norm.op = Op::gradient_norm;
  norm.stream = StreamKind::collective;
  const int near = messages_of_doubling(std::min(program.devices, program.devices_per_node));
  const int far = messages_of_doubling((program.devices + program.devices_per_node - 1) /
                                       program.devices_per_node);
  norm.intra_node_bytes = near * kNormBytes;
  norm.inter_node_bytes = far * kNormBytes;
  norm.transfers = near + far;
  return norm;
}

void write_sharded_streams(Program& program, const CostModel& model) {
  std::vector<int> steps;  // by phase
  for (const PipelineProgram& pipeline : program.pipelines) {
    steps.resize(std::max(steps.size(), static_cast<std::size_t>(pipeline.phase) + 1));
    steps[pipeline.phase] =
        std::max(steps[pipeline.phase], static_cast<int>(pipeline.micro_batches.size()));
  }
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const int phase = program.pipelines[program.stages[s].pipeline].phase;
    int before = 0;
    int after = 0;
    for (int other = 0; other < static_cast<int>(steps.size()); ++other) {
      if (other < phase) before += 2 * steps[other];
      if (other > phase) after += 2 * steps[other];
    }
    ShardedWriter(program, model, static_cast<int>(s))
        .write(steps[phase], before, after, phase + 1 == static_cast<int>(steps.size()));
  }
}

}  // namespace hydraulis
