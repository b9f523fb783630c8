#include "sim/results.h"

#include <algorithm>
#include <limits>

namespace hydraulis {
namespace {

constexpr double kSecondsPerHour = 3600;
constexpr double kBillion = 1e9;

}  // namespace

const char* to_string(RunOutcome outcome) {
  switch (outcome) {
    case RunOutcome::done:
      return "done";
    case RunOutcome::infeasible:
      return "infeasible";
    case RunOutcome::invalid:
      return "invalid";
  }
  return "";
}

double ResultRun::device_hours_per_billion_tokens() const {
  if (!(summary.tokens_per_second > 0)) return std::numeric_limits<double>::quiet_NaN();
  return devices * kBillion / summary.tokens_per_second / kSecondsPerHour;
}

KeptIteration keep_iteration(const SimulatedIteration& simulated, const CostModel& model,
                             int iteration) {
  KeptIteration kept;
  kept.iteration = iteration;
  kept.memory_limit_bytes = memory_limit_bytes(model);
  kept.timeline = make_timeline(simulated.program, simulated.replay, iteration);
  for (std::size_t s = 0; s < simulated.program.stages.size(); ++s) {
    const Stage& stage = simulated.program.stages[s];
    const PipelineProgram& pipeline = simulated.program.pipelines[stage.pipeline];
    double largest = 0;
    for (const MicroBatch& micro_batch : pipeline.micro_batches) {
      largest = std::max(largest, static_cast<double>(micro_batch.tokens() + micro_batch.padding));
    }
    StageResult result;
    result.pipeline = stage.pipeline;
    result.index = stage.index;
    result.scheme = to_string(pipeline.scheme);
    result.times = simulated.replay.stages[s];
    result.memory = stage_memory(model, pipeline.scheme, stage.index,
                                 static_cast<double>(result.times.peak_live_tokens), largest);
    kept.stages.push_back(std::move(result));
  }
  return kept;
}

}  // namespace hydraulis
