#include "planner/exposed_traffic.h"

#include <algorithm>

#include "planner/program/collectives.h"
#include "planner/program/lower.h"

namespace hydraulis {
namespace {

/// How full the first and last micro-batch are taken to be.
constexpr double kFill = 0.5;

/// What is left of a stage's transfers, one run of layers after the other, beside `seconds` of
/// computation: the first layer's at least, or all that is beyond the computation.
double exposed(double transfers, int layers, double seconds) {
  return std::max(transfers / layers, transfers - seconds);
}

}  // namespace

double exposed_traffic_seconds(const Strategy& strategy, const CostModel& model) {
  BatchPlan idle;
  for (const Scheme& scheme : strategy) idle.pipelines.push_back({scheme, {}, 0});
  const Program program = lower(idle, model);
  double busiest = 0;
  for (const Stage& stage : program.stages) {
    double gather = 0;
    double reduce = 0;
    for (const Instruction& instruction : stage.instructions) {
      if (instruction.stream != StreamKind::parameters) continue;
      (instruction.op == Op::gather_parameters ? gather : reduce) += traffic_seconds(
          {instruction.intra_node_bytes, instruction.inter_node_bytes, instruction.transfers},
          model.cluster);
    }
    const Scheme& scheme = program.pipelines[static_cast<std::size_t>(stage.pipeline)].scheme;
    const auto cost = stage_cost(model, scheme, stage.index);
    const double pass =
        cost ? cost->of(0, kFill * static_cast<double>(max_tokens(model, scheme))) : 0;
    const int layers = std::max(
        1, stage_layers(scheme, model.model.layers)[static_cast<std::size_t>(stage.index)]);
    busiest = std::max(busiest, exposed(gather, layers, kForwardShare * pass) +
                                    exposed(reduce, layers, (1 - kForwardShare) * pass));
  }
  return busiest;
}

}  // namespace hydraulis
