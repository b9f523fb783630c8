#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/run_config.h"
#include "runtime/run_setup.h"
#include "runtime/tensor.h"

namespace hydraulis {

/// One step as people see it.
struct StepReport {
  std::int64_t step = 0;  ///< iterations done, this one included
  std::int64_t steps = 0;
  double loss = 0;
  double gradient_norm = 0;
  double learning_rate = 0;
  std::int64_t targets = 0;
  std::int64_t tokens = 0;
  double seconds = 0;
  double predicted_seconds = 0;  ///< makespan and parameter traffic by the plan's cost model
  double waited_seconds = 0;     ///< for the planner
  std::string strategy;
  bool updated = false;
  std::optional<double> validation_loss;
};

/// What a run leaves behind.
struct TrainSummary {
  std::int64_t first_step = 0;  ///< steps done before this run began
  std::int64_t steps = 0;       ///< done when it ended
  double last_loss = 0;
  double mean_seconds = 0;                ///< of this run's steps but the first
  double mean_predicted_seconds = 0;      ///< of the same
  bool stopped = false;                   ///< by a signal
  std::int64_t skipped = 0;               ///< steps without an update
  std::int64_t peak_bytes = 0;            ///< device memory of the fullest rank
  std::int64_t predicted_peak_bytes = 0;  ///< of the fullest device, by the memory model
  std::filesystem::path checkpoint;       ///< the last one written, empty if none
};

enum class Resume : std::uint8_t { no, newest };

/// Called on rank 0 alone.
struct TrainListener {
  std::function<void(const StepReport&)> step;
  std::function<void(const std::string&)> note;
};

/// How long a rank that was asked to stop waits for the step's end, given the longest step so far:
/// past the moment when a rank that does not answer is given up, which says more.
double stop_grace(const RunConfig& config, double longest_step_seconds);

/// Trains. All ranks call it together; the plan must be for their number. Writes into
/// config.output: log.csv, TensorBoard events, sequences.csv (which sequence was trained when),
/// checkpoints/, timeline.h5. Throws InputError, InfeasibleError (on all ranks alike, see
/// together()), CommunicationError.
TrainSummary train(const Backend& backend, const RunConfig& config, const RunSetup& setup,
                   Resume resume, const TrainListener& listener);

}  // namespace hydraulis
