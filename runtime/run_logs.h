#pragma once

#include <filesystem>
#include <string>

#include "planner/program/timeline.h"
#include "runtime/csv_log.h"
#include "runtime/executor.h"
#include "runtime/run_config.h"
#include "runtime/tensorboard.h"
#include "runtime/trainer.h"
#include "traces/sampler.h"

namespace hydraulis {

/// Files of a run beside its checkpoints, written by rank 0: log.csv (one row a step),
/// sequences.csv (step, sequence, tokens: what was trained when) and TensorBoard events.
class RunLogs {
 public:
  /// Continues the files of a run that resumes after `step`. Throws InputError.
  RunLogs(const RunConfig& config, std::int64_t step);
  void write(const StepReport& report, const Batch& batch);

 private:
  CsvLog steps_;
  CsvLog sequences_;
  TensorboardWriter tensorboard_;
};

/// Keeps the program of a step in `folder`/step-00000012.json, so that the step can be simulated as
/// it was trained. Throws InputError.
void write_step_program(const std::filesystem::path& folder, std::int64_t step,
                        const Program& program);

/// Collects measured timelines from the ranks, one device a stage (its first), on rank 0.
class TimelineCollector {
 public:
  /// All ranks call it together, with their own outcome.
  void add(const Backend& backend, const Program& program, const IterationOutcome& mine);
  void write(const std::filesystem::path& path, const std::string& model) const;

 private:
  Timeline timeline_;
};

}  // namespace hydraulis
