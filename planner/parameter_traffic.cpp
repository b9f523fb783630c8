#include "planner/parameter_traffic.h"

#include <algorithm>

#include "planner/program/lower.h"

namespace hydraulis {

double parameter_traffic_seconds(const Strategy& strategy, const CostModel& model) {
  BatchPlan idle;
  for (const Scheme& scheme : strategy) idle.pipelines.push_back({scheme, {}, 0});
  const Program program = lower(idle, model);
  const LinkSpec& intra = model.cluster.intra_node;
  const LinkSpec& inter = model.cluster.inter_node;
  double busiest = 0;
  for (const Stage& stage : program.stages) {
    double seconds = 0;
    for (const Instruction& instruction : stage.instructions) {
      if (instruction.stream != StreamKind::parameters) continue;
      const auto near = static_cast<double>(instruction.intra_node_bytes);
      const auto far = static_cast<double>(instruction.inter_node_bytes);
      const double latency = far > 0 ? inter.latency_seconds : intra.latency_seconds;
      seconds += instruction.transfers * latency + near / intra.bandwidth_bytes_per_second +
                 far / inter.bandwidth_bytes_per_second;
    }
    busiest = std::max(busiest, seconds);
  }
  return busiest;
}

}  // namespace hydraulis
