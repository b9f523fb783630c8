#include "sim/training_job.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "costmodel/host_states.h"

namespace hydraulis {
namespace {

/// Bytes of a parameter's states, wherever they are kept.
double state_bytes(const CostModel& model) {
  return model.states == OptimizerStates::host ? kHostStatesBytes : model.numbers.optimizer;
}

}  // namespace

std::vector<IterationSample> iteration_samples(const RunResult& run) {
  std::vector<IterationSample> samples;
  for (const IterationResult& iteration : run.iterations) {
    samples.push_back({iteration.time_seconds, static_cast<double>(iteration.tokens)});
  }
  return samples;
}

int least_nodes(const Faults& faults, int nodes) {
  constexpr int kFewer = 4;
  if (!faults.failures || faults.recovery.mode != RecoveryMode::shrink) return nodes;
  if (faults.recovery.least_nodes > nodes) {
    throw InputError("{}: field 'recovery.least_nodes' is {}, the cluster has {} nodes",
                     faults.where, faults.recovery.least_nodes, nodes);
  }
  if (faults.recovery.least_nodes > 0) return faults.recovery.least_nodes;
  return std::max({1, (nodes + 1) / 2, nodes - kFewer});
}

double checkpoint_bytes(const Faults& faults, const CostModel& model) {
  const double given = faults.checkpoint ? faults.checkpoint->bytes_per_parameter : 0;
  return static_cast<double>(parameter_count(model.model)) *
         (given > 0 ? given : state_bytes(model));
}

TrainingJob training_job(const Faults& faults, const CostModel& model,
                         std::vector<std::vector<IterationSample>> iterations) {
  if (!faults.failures && !faults.checkpoint) {
    throw InputError("{}: neither failures nor checkpoint, expected at least one of both",
                     faults.where);
  }
  if (faults.failures && !faults.checkpoint) {
    throw InputError("{}: field 'checkpoint' is missing; a job that fails starts from one",
                     faults.where);
  }
  TrainingJob job;
  job.nodes = model.cluster.nodes;
  job.iterations = std::move(iterations);
  job.fails = faults.failures.has_value();
  if (faults.failures) job.failures = *faults.failures;
  job.recovery = faults.recovery;
  const CheckpointModel& checkpoint = *faults.checkpoint;
  job.checkpoints = true;
  job.interval_seconds = checkpoint.interval_seconds.value_or(0);
  job.interval_iterations = checkpoint.interval_iterations.value_or(0);
  const auto parameters = static_cast<double>(parameter_count(model.model));
  job.write_seconds =
      checkpoint_write_seconds(checkpoint, parameters, state_bytes(model), job.nodes);
  job.read_seconds = checkpoint_read_seconds(checkpoint, parameters, state_bytes(model), job.nodes);
  job.asynchronous = checkpoint.asynchronous;
  job.snapshot_seconds = checkpoint.snapshot_seconds;
  job.seed = faults.variance.seed;
  return job;
}

}  // namespace hydraulis
