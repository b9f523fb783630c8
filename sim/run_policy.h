#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/policy.h"
#include "sim/iterations.h"

namespace hydraulis {

/// A run of batches as it is drawn from a trace: never held as a whole, drawn anew by whoever goes
/// through it.
struct BatchRun {
  const LengthTrace& trace;
  SamplerOptions sampling;
  std::uint64_t iterations = 0;
};

/// What one pass over a run tells before any of it is planned.
struct BatchSurvey {
  std::vector<Batch> tuning;       ///< spread evenly over the run: PolicySetup::batches
  OverContextCounts over_context;  ///< what the sampler did to long sequences on the way
  std::uint64_t over_budget = 0;   ///< batches of one sequence longer than the token budget
};
BatchSurvey survey(const BatchRun& run);

struct PolicyRunOptions {
  IterationOptions iteration;
  bool keep_iterations = true;                  ///< else the summary alone
  std::optional<std::uint64_t> keep_plan = {};  ///< of this iteration
};

/// A policy's run, simulated.
struct SimulatedRun {
  RunResult result;
  std::vector<Strategy> strategies;
  CostModel model;
  std::string remark;
  std::optional<BatchPlan> kept_plan;
  double planning_seconds = 0;       ///< measured, of an iteration in the mean
  double most_planning_seconds = 0;  ///< of the iteration that took longest to plan
};

/// Plans and simulates a run with the named policy, some iterations at a time, so that memory does
/// not grow with the plans of the run. The result does not depend on how many those are, nor on
/// threads. Throws what make_policy() and simulate() throw.
SimulatedRun run_policy(const std::string& policy, const PolicySetup& setup, const BatchRun& run,
                        const PolicyRunOptions& options = {});

}  // namespace hydraulis
