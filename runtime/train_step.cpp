#include "runtime/train_step.h"

#include <array>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "runtime/agreement.h"

namespace hydraulis {
namespace {

using Clock = std::chrono::steady_clock;

/// Does `work`; a communication that fails in it names the step and the rank.
template <typename Work>
void naming(const Backend& backend, const ExecuteOptions& options, Op op, const Work& work) {
  try {
    work();
  } catch (const CommunicationError& error) {
    throw CommunicationError(fmt::format("step {}, rank {}, {}: {}", options.iteration,
                                         backend.world->rank(), to_string(op), error.what()));
  }
}

/// Records the instruction of this kind of every stage whose first device this rank is.
void record(const Backend& backend, const Program& program, const ExecuteOptions& options, Op op,
            Clock::time_point start, IterationOutcome& own) {
  if (!options.record_events) return;
  const auto seconds = [&](Clock::time_point at) {
    return std::chrono::duration<double>(at - own.began).count();
  };
  const Clock::time_point end = Clock::now();
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    if (stage.devices.front() != backend.world->rank()) continue;
    for (std::size_t i = 0; i < stage.instructions.size(); ++i) {
      const Instruction& instruction = stage.instructions[i];
      if (instruction.op != op) continue;
      own.events.push_back({options.iteration, static_cast<int>(s), static_cast<int>(i), op,
                            instruction.stream, instruction.micro_batch, seconds(start),
                            seconds(end),
                            instruction.intra_node_bytes + instruction.inter_node_bytes});
    }
  }
}

/// What the sums of a step (loss, targets, squared gradients) make of it.
StepOutcome outcome_of(const std::array<double, 3>& sums) {
  StepOutcome outcome;
  outcome.targets = std::llround(sums[1]);
  if (outcome.targets == 0) return outcome;
  outcome.loss = sums[0] / sums[1];
  outcome.gradient_norm = std::sqrt(sums[2]) / sums[1];
  return outcome;
}

OptimizerStep step_of(const UpdateSettings& settings, const StepOutcome& outcome) {
  OptimizerStep step;
  step.learning_rate = settings.learning_rate;
  step.beta1 = settings.beta1;
  step.beta2 = settings.beta2;
  step.epsilon = settings.epsilon;
  step.weight_decay = settings.weight_decay;
  step.step = settings.update;
  step.gradient_scale = 1 / static_cast<double>(outcome.targets);
  if (settings.clip_norm > 0 && outcome.gradient_norm > settings.clip_norm) {
    step.gradient_scale *= settings.clip_norm / outcome.gradient_norm;
  }
  return step;
}

}  // namespace

StepOutcome global_loss(const Backend& backend, const IterationOutcome& mine) {
  std::array<double, 2> sums{mine.loss_sum, static_cast<double>(mine.targets)};
  sum_over_ranks(backend, sums);
  StepOutcome outcome;
  outcome.targets = std::llround(sums[1]);
  if (outcome.targets > 0) outcome.loss = sums[0] / sums[1];
  return outcome;
}

StepOutcome train_step(const Backend& backend, Executor& executor, OptimizerShard& shard,
                       const Program& program, const TokenSource& tokens,
                       const UpdateSettings& settings, const ExecuteOptions& options,
                       IterationOutcome* mine,
                       const std::function<bool(const StepOutcome&)>& accept) {
  IterationOutcome own = executor.run(program, tokens, options);
  const auto record_as = [&](Op op, Clock::time_point start) {
    record(backend, program, options, op, start, own);
  };
  const ComputeStream stream(backend);
  const Clock::time_point norm_start = Clock::now();
  std::array<double, 3> sums{own.loss_sum, static_cast<double>(own.targets),
                             backend.compute->sum_squares(shard.gradients(), *stream)};
  naming(backend, options, Op::gradient_norm, [&] { sum_over_ranks(backend, sums); });
  record_as(Op::gradient_norm, norm_start);

  StepOutcome outcome = outcome_of(sums);
  if (outcome.targets > 0 && std::isfinite(outcome.loss) && std::isfinite(outcome.gradient_norm) &&
      (!accept || accept(outcome))) {
    const Clock::time_point step_start = Clock::now();
    naming(backend, options, Op::optimizer_step, [&] {
      shard.step(settings.optimizer, step_of(settings, outcome), *stream);
      backend.device->synchronize(*stream);
    });
    record_as(Op::optimizer_step, step_start);
    outcome.updated = true;
  }
  if (mine != nullptr) *mine = std::move(own);
  return outcome;
}

}  // namespace hydraulis
