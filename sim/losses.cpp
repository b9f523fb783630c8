#include "sim/losses.h"

#include <algorithm>
#include <vector>

#include "planner/schedule_work.h"
#include "sim/graph.h"

namespace hydraulis {
namespace {

/// Seconds of an instruction that is a pass over a micro-batch.
double pass_of(const PassSeconds& seconds, Op op) {
  switch (op) {
    case Op::forward:
    case Op::recompute:
      return seconds.forward;
    case Op::backward:
      return seconds.backward();
    case Op::backward_input:
      return seconds.backward_input;
    case Op::backward_weight:
      return seconds.backward_weight;
    default:
      return 0;
  }
}

/// Share of a pass that its padding takes.
double padding_share(const PassCost& cost, const MicroBatch& batch, Op op) {
  const double squares = batch.sum_squares();
  const auto tokens = static_cast<double>(batch.tokens());
  const double with = pass_of(cost.of(squares, tokens + static_cast<double>(batch.padding)), op);
  return with > 0 ? 1 - pass_of(cost.of(squares, tokens), op) / with : 0;
}

bool belongs_to_all(Op op) { return detail::is_global(op) || op == Op::optimizer_step; }

/// Seconds of padding and of the optimizer's step on one stage.
struct ComputeParts {
  double padding = 0;
  double optimizer = 0;
};

ComputeParts parts_of(const Program& program, const Replay& replay, const CostModel& model,
                      std::size_t index) {
  const Stage& stage = program.stages[index];
  const PipelineProgram& pipeline = program.pipelines[stage.pipeline];
  const bool has_padding = std::any_of(pipeline.micro_batches.begin(), pipeline.micro_batches.end(),
                                       [](const MicroBatch& batch) { return batch.padding > 0; });
  ComputeParts parts;
  std::vector<PassCost> costs;
  const int chunks = chunks_of(stage);
  for (int chunk = 0; has_padding && chunk < chunks; ++chunk) {
    const LayerRange range = layers_of(stage, chunk);
    costs.push_back(chunks == 1
                        ? pass_cost(model, pipeline.scheme, stage.index)
                        : pass_cost(model, pipeline.scheme, range.end - range.begin,
                                    stage.index == 0 && chunk == 0,
                                    stage.index + 1 == pipeline.scheme.pp && chunk + 1 == chunks));
  }
  for (std::size_t i = 0; i < stage.instructions.size(); ++i) {
    const Instruction& instruction = stage.instructions[i];
    if (instruction.stream != StreamKind::compute) continue;
    const Span& span = replay.spans[index][i];
    if (instruction.op == Op::optimizer_step) {
      parts.optimizer += span.end - span.start;
    } else if (has_padding && instruction.micro_batch >= 0) {
      const MicroBatch& batch = pipeline.micro_batches[instruction.micro_batch];
      if (batch.padding == 0) continue;
      parts.padding +=
          (span.end - span.start) *
          padding_share(costs[static_cast<std::size_t>(instruction.chunk)], batch, instruction.op);
    }
  }
  return parts;
}

}  // namespace

void Losses::add(const Losses& other) {
  work += other.work;
  padding += other.padding;
  optimizer += other.optimizer;
  exposed += other.exposed;
  bubble += other.bubble;
  straggler += other.straggler;
  unused += other.unused;
}

Losses split_losses(const Program& program, const Replay& replay, const CostModel& model) {
  // When each pipeline has done its own part, and the last of its phase.
  std::vector<double> done(program.pipelines.size(), 0);
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    for (std::size_t i = 0; i < stage.instructions.size(); ++i) {
      if (belongs_to_all(stage.instructions[i].op)) continue;
      done[stage.pipeline] = std::max(done[stage.pipeline], replay.spans[s][i].end);
    }
  }
  std::vector<double> phase_ends;
  for (std::size_t p = 0; p < program.pipelines.size(); ++p) {
    const auto phase = static_cast<std::size_t>(program.pipelines[p].phase);
    phase_ends.resize(std::max(phase_ends.size(), phase + 1), 0);
    phase_ends[phase] = std::max(phase_ends[phase], done[p]);
  }

  Losses losses;
  std::vector<char> is_used(static_cast<std::size_t>(std::max(0, program.devices)), 0);
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    const auto devices = static_cast<double>(stage.devices.size());
    for (const int device : stage.devices) is_used.at(static_cast<std::size_t>(device)) = 1;
    const ComputeParts parts = parts_of(program, replay, model, s);
    const double computing = replay.stages[s].compute_seconds;
    losses.optimizer += devices * parts.optimizer;
    losses.padding += devices * parts.padding;
    losses.work += devices * (computing - parts.optimizer - parts.padding);
    losses.exposed += devices * replay.stages[s].exposed_communication_seconds;
    const auto phase = static_cast<std::size_t>(program.pipelines[stage.pipeline].phase);
    losses.straggler += devices * (phase_ends[phase] - done[stage.pipeline]);
  }
  const double all = program.devices * replay.makespan_seconds;
  const auto idle = std::count(is_used.begin(), is_used.end(), 0);
  losses.unused = static_cast<double>(idle) * replay.makespan_seconds;
  losses.bubble = all - losses.work - losses.padding - losses.optimizer - losses.exposed -
                  losses.straggler - losses.unused;
  return losses;
}

}  // namespace hydraulis
