#pragma once

#include <cstdint>
#include <string>

#include "runtime/executor.h"

namespace hydraulis {

struct UpdateSettings {
  OptimizerKind optimizer = OptimizerKind::adamw;
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;   ///< global gradient norm above which gradients shrink; 0: never
  std::int64_t update = 1;  ///< number of this update, from 1
};

/// What a step did, the same on every rank.
struct StepOutcome {
  double loss = 0;  ///< mean over all target tokens of the global batch, nats; 0 without any
  std::int64_t targets = 0;
  double gradient_norm = 0;  ///< of the mean loss, before clipping
  bool updated = false;      ///< false: no target, or something was not finite
};

/// Sums of all ranks' losses and targets, in rank order.
StepOutcome global_loss(const Backend& backend, const IterationOutcome& mine);

/// One iteration and one update of the optimizer. The summed loss is divided once by the number of
/// target tokens of the global batch; gradients are clipped by their global norm (each element
/// counted once, wherever it is replicated). A batch without targets, or a loss or norm that is not
/// finite, or that `accept` refuses (the same on every rank), changes nothing.
StepOutcome train_step(const Backend& backend, Executor& executor, OptimizerShard& shard,
                       const Program& program, const TokenSource& tokens,
                       const UpdateSettings& settings, const ExecuteOptions& options = {},
                       IterationOutcome* mine = nullptr,
                       const std::function<bool(const StepOutcome&)>& accept = nullptr);

}  // namespace hydraulis
