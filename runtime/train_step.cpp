#include "runtime/train_step.h"

#include <array>
#include <chrono>
#include <cmath>

#include "runtime/agreement.h"
#include "runtime/instruction_record.h"

namespace hydraulis {
namespace {

using Clock = std::chrono::steady_clock;

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
    record_together(backend, program, options, op, 0, start, own);
  };
  const ComputeStream stream(backend);
  const Clock::time_point norm_start = Clock::now();
  std::array<double, 3> sums{own.loss_sum, static_cast<double>(own.targets),
                             backend.compute->sum_squares(shard.gradients(), *stream)};
  naming_step(backend, options.iteration, Op::gradient_norm,
              [&] { sum_over_ranks(backend, sums); });
  record_as(Op::gradient_norm, norm_start);

  StepOutcome outcome = outcome_of(sums);
  if (outcome.targets > 0 && std::isfinite(outcome.loss) && std::isfinite(outcome.gradient_norm) &&
      (!accept || accept(outcome))) {
    const Clock::time_point step_start = Clock::now();
    naming_step(backend, options.iteration, Op::optimizer_step, [&] {
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
