#include "runtime/train_step.h"

#include <array>
#include <cmath>

#include "base/error.h"

namespace hydraulis {
namespace {

template <std::size_t n>
void sum_over_ranks(const Backend& backend, std::array<double, n>& values) {
  const std::unique_ptr<Stream> stream = backend.device->make_stream();
  DeviceBuffer buffer(*backend.device, n * sizeof(double));
  backend.device->copy_to_device(buffer.data(), values.data(), buffer.bytes(), *stream);
  backend.world->all_reduce(buffer.data(), n, DataType::f64, Reduction::sum, *stream);
  backend.device->copy_to_host(values.data(), buffer.data(), buffer.bytes(), *stream);
  backend.device->synchronize(*stream);
}

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
  const std::unique_ptr<Stream> stream = backend.device->make_stream();
  std::array<double, 3> sums{own.loss_sum, static_cast<double>(own.targets),
                             backend.compute->sum_squares(shard.gradients(), *stream)};
  if (mine != nullptr) *mine = std::move(own);
  naming(backend, options, Op::gradient_norm, [&] { sum_over_ranks(backend, sums); });

  StepOutcome outcome;
  outcome.targets = std::llround(sums[1]);
  if (outcome.targets == 0) return outcome;
  outcome.loss = sums[0] / sums[1];
  outcome.gradient_norm = std::sqrt(sums[2]) / sums[1];
  if (!std::isfinite(outcome.loss) || !std::isfinite(outcome.gradient_norm)) return outcome;
  if (accept && !accept(outcome)) return outcome;

  OptimizerStep step;
  step.learning_rate = settings.learning_rate;
  step.beta1 = settings.beta1;
  step.beta2 = settings.beta2;
  step.epsilon = settings.epsilon;
  step.weight_decay = settings.weight_decay;
  step.step = settings.update;
  step.gradient_scale = 1 / sums[1];
  if (settings.clip_norm > 0 && outcome.gradient_norm > settings.clip_norm) {
    step.gradient_scale *= settings.clip_norm / outcome.gradient_norm;
  }
  naming(backend, options, Op::optimizer_step, [&] {
    shard.step(settings.optimizer, step, *stream);
    backend.device->synchronize(*stream);
  });
  outcome.updated = true;
  return outcome;
}

}  // namespace hydraulis
