#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "costmodel/cost_model.h"
#include "planner/program/timeline.h"
#include "sim/iterations.h"

namespace hydraulis {

/// One stage of a kept iteration; numbers hold for each of its devices.
struct StageResult {
  int pipeline = 0;
  int index = 0;       ///< within the pipeline
  std::string scheme;  ///< "(1,16,1)"
  StageReplay times;
  StageMemory memory;  ///< composed model, at the stage's high-water mark
};

/// One iteration of a run, kept in full.
struct KeptIteration {
  int iteration = 0;
  std::vector<StageResult> stages;  ///< by global index
  double memory_limit_bytes = 0;    ///< of a device
  Timeline timeline;
};

/// What came of a point: infeasible where nothing fits or memory runs out, invalid where its fields
/// do not make a system.
enum class RunOutcome { done, infeasible, invalid };
const char* to_string(RunOutcome outcome);

/// One simulated run: a policy on one system and trace.
struct ResultRun {
  /// What was run, field by field as a sweep file has them, names resolved; an object.
  Json settings;
  std::vector<Json> axis_values;  ///< one for each axis: texts, numbers or booleans
  RunOutcome outcome = RunOutcome::done;
  std::string message;  ///< why not done
  std::string policy;
  std::string remark;  ///< of the policy: the layout it found, what it could not try
  std::string model;
  std::string profile;              ///< where times come from, for people
  bool analytic = false;            ///< derived from a data sheet
  Json provenance = Json::array();  ///< sources of its numbers (sources_json)
  int devices = 0;
  RunSummary summary;  ///< without the measured wall time
  std::vector<IterationResult> iterations;
  std::vector<std::string> strategies;  ///< that iterations name by number
  std::optional<KeptIteration> kept;

  double device_hours_per_billion_tokens() const;
};

/// Runs side by side: the points of a sweep, the policies of a comparison.
struct Results {
  std::string name;
  std::vector<std::string> axes;  ///< of the grid, the slowest first; may be empty
  std::vector<ResultRun> runs;
};

/// HDF5 (docs/formats.md, "Results"), atomically.
void write_results(const Results& results, const std::filesystem::path& path);
/// Throws InputError naming the file and what is wrong with it.
Results read_results(const std::filesystem::path& path);

/// A simulated iteration as results keep it.
KeptIteration keep_iteration(const SimulatedIteration& simulated, const CostModel& model,
                             int iteration);

}  // namespace hydraulis
