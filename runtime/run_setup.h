#pragma once

#include <string>

#include "planner/plan_json.h"
#include "planner/policy.h"
#include "runtime/decoder.h"
#include "runtime/run_config.h"
#include "runtime/training_data.h"

namespace hydraulis {

/// What a run's file names, loaded and checked against one another.
struct RunSetup {
  Plan plan;
  CostModel model;  ///< with the numbers that the runtime keeps
  DecoderSpec decoder;
  DataSettings data;  ///< what the file leaves open is as the plan has it
};

/// Throws InputError or InfeasibleError: a scheme that cannot be trained, a context over the
/// plan's.
RunSetup load_run_setup(const RunConfig& config);

/// Bytes a rank's device may use: the run's limit, or else the memory of the plan's device.
std::int64_t memory_limit_bytes(const RunConfig& config, const RunSetup& setup);

/// Of the run's policy; `tuning`: batches that a static policy looks for its layout on.
PolicySetup policy_setup(const RunSetup& setup, std::span<const Batch> tuning);

/// The run's first batches, for that.
std::vector<Batch> tuning_batches(const RunConfig& config, const RunSetup& setup);

Batch lengths_of(const TrainingBatch& batch);

/// Makespan and parameter traffic by the cost model: what a step should take.
double predicted_seconds(const BatchPlan& plan, const CostModel& model);
/// The strategies of the plan's phases: "4x(1,1,1) > (1,4,1)".
std::string strategy_text(const BatchPlan& plan);

}  // namespace hydraulis
