#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "planner/program/timeline.h"
#include "runtime/stage_model.h"

namespace hydraulis {

/// What one rank saw of one iteration's forwards and backwards; sums are this rank's alone.
struct IterationOutcome {
  double loss_sum = 0;
  std::int64_t targets = 0;
  /// Of this rank's pipelines, by pipeline and micro-batch; filled when asked for.
  std::map<std::pair<int, int>, std::vector<double>> token_losses;
  std::chrono::steady_clock::time_point began;  ///< on this rank
  std::vector<TimelineEvent> events;            ///< seconds since then
};

/// Tokens of one micro-batch of a pipeline of the program.
using TokenSource = std::function<MicroBatchTokens(int pipeline, int micro_batch)>;

struct ExecuteOptions {
  bool keep_token_losses = false;
  bool record_events = false;
  int iteration = 0;  ///< written into events and error messages
};

}  // namespace hydraulis
