#include "planner/parameter_traffic.h"

#include <algorithm>

#include "planner/program/collectives.h"
#include "planner/program/lower.h"

namespace hydraulis {

double parameter_traffic_seconds(const Strategy& strategy, const CostModel& model) {
  BatchPlan idle;
  for (const Scheme& scheme : strategy) idle.pipelines.push_back({scheme, {}, 0});
  const Program program = lower(idle, model);
  double busiest = 0;
  for (const Stage& stage : program.stages) {
    double seconds = 0;
    for (const Instruction& instruction : stage.instructions) {
      if (instruction.stream != StreamKind::parameters) continue;
      seconds += traffic_seconds(
          {instruction.intra_node_bytes, instruction.inter_node_bytes, instruction.transfers},
          model.cluster);
    }
    busiest = std::max(busiest, seconds);
  }
  return busiest;
}

}  // namespace hydraulis
