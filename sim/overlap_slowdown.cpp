#include "sim/overlap_slowdown.h"

#include <algorithm>

#include "planner/program/overlap_cost.h"
#include "planner/program/pass_piece.h"

namespace hydraulis::detail {
namespace {

bool is_pass(Op op) {
  return op == Op::forward || op == Op::backward || op == Op::backward_input ||
         op == Op::backward_weight;
}

bool waits_for(const Instruction& instruction, std::size_t before) {
  return std::find(instruction.depends_on.begin(), instruction.depends_on.end(),
                   static_cast<int>(before)) != instruction.depends_on.end();
}

/// Seconds of traffic beside each instruction.
std::vector<double> beside_passes(const Stage& stage, const std::vector<double>& seconds) {
  std::vector<double> beside(seconds.size(), 0);
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    if (!is_pass(stage.instructions[i].op)) continue;
    for (std::size_t j = i + 1; j < seconds.size(); ++j) {
      const Instruction& next = stage.instructions[j];
      if (next.stream != StreamKind::parameters) break;
      if (!waits_for(next, i)) beside[i] += seconds[j];
    }
  }
  return beside;
}

std::vector<double> beside_pieces(const Stage& stage, const std::vector<double>& seconds) {
  std::vector<double> beside(seconds.size(), 0);
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const Instruction& instruction = stage.instructions[i];
    if (instruction.op == Op::forward && piece_of(stage, instruction).share < 1 && i > 0) {
      for (const int before : instruction.depends_on) {
        const bool gather = stage.instructions[before].op == Op::gather_parameters;
        const bool follows = stage.instructions[i - 1].op == Op::forward &&
                             stage.instructions[i - 1].micro_batch == instruction.micro_batch;
        if (gather && follows) beside[i - 1] += seconds[before];
      }
    }
    if (instruction.op != Op::reduce_gradients) continue;
    for (const int before : instruction.depends_on) {
      const Instruction& piece = stage.instructions[before];
      const auto next = static_cast<std::size_t>(before) + 1;
      if (!is_pass(piece.op) || piece_of(stage, piece).share >= 1) continue;
      const Instruction& follower = stage.instructions[next];
      if (follower.op == piece.op && follower.micro_batch == piece.micro_batch) {
        beside[next] += seconds[i];
      }
    }
  }
  return beside;
}

}  // namespace

void slow_overlapped(const Program& program, const ClusterSpec& cluster, Durations& durations) {
  const double slowdown = overlap_slowdown(cluster);
  if (slowdown == 0) return;
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    std::vector<double>& seconds = durations.seconds[s];
    const std::vector<double> beside = program.sharding == ParameterSharding::sharded
                                           ? beside_passes(stage, seconds)
                                           : beside_pieces(stage, seconds);
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      if (beside[i] > 0) seconds[i] = slowed(seconds[i], beside[i], slowdown);
    }
  }
}

}  // namespace hydraulis::detail
