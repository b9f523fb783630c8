#include "planner/parameter_traffic.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "planner/program/collectives.h"
#include "planner/program/lower.h"

namespace hydraulis {

double parameter_traffic_seconds(const Strategy& strategy, const CostModel& model) {
  BatchPlan idle;
  for (const Scheme& scheme : strategy) idle.pipelines.push_back({scheme, {}, 0});
  return parameter_traffic_seconds(idle, model);
}

double parameter_traffic_seconds(const BatchPlan& plan, const CostModel& model) {
  BatchPlan idle;
  for (const PipelinePlan& pipeline : plan.pipelines) {
    idle.pipelines.push_back({pipeline.scheme, {}, 0, pipeline.phase});
  }
  const Program program = lower(idle, model);
  std::vector<double> busiest(static_cast<std::size_t>(plan.phases()), 0.0);
  for (const Stage& stage : program.stages) {
    double seconds = 0;
    for (const Instruction& instruction : stage.instructions) {
      if (instruction.stream != StreamKind::parameters) continue;
      seconds += traffic_seconds(
          {instruction.intra_node_bytes, instruction.inter_node_bytes, instruction.transfers},
          model.cluster);
    }
    double& most = busiest[static_cast<std::size_t>(program.pipelines[stage.pipeline].phase)];
    most = std::max(most, seconds);
  }
  return std::accumulate(busiest.begin(), busiest.end(), 0.0);
}

}  // namespace hydraulis
