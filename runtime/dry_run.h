#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/cost_model.h"
#include "runtime/run_config.h"

namespace hydraulis {

/// What a run would do, from its first batches planned and not trained.
struct DryRun {
  std::int64_t steps = 0;
  int devices = 0;
  std::int64_t parameters = 0;
  std::int64_t batches = 0;  ///< looked at
  double mean_tokens = 0;    ///< of a batch
  double mean_seconds = 0;   ///< predicted, of a step
  double most_seconds = 0;
  std::int64_t memory_limit_bytes = 0;
  std::int64_t host_bytes = 0;  ///< that optimizer states take of a rank's host memory
  /// Strategies used, with the fullest device over the batches that used each.
  struct Use {
    std::string strategy;
    std::int64_t batches = 0;
    StageMemory fullest;
  };
  std::vector<Use> strategies;
  std::vector<std::string> notes;
};

/// Needs neither the ranks nor the memory of the run. Throws InputError, InfeasibleError.
DryRun dry_run(const RunConfig& config);

}  // namespace hydraulis
