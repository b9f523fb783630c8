// What a stage's run says of itself: descriptions for messages, events for the timeline.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/instruction_record.h"
#include "runtime/stage_run.h"

namespace hydraulis {

std::string StageRun::describe(Op op) const {
  return fmt::format("step {}, rank {}, {}", options_.iteration, world_.rank(), to_string(op));
}

std::string StageRun::describe(int i) const {
  const Instruction& instruction = stage_->instructions[i];
  std::string what = to_string(instruction.op);
  if (instruction.micro_batch >= 0) {
    what += fmt::format(" of micro-batch {}", instruction.micro_batch);
  }
  return fmt::format("step {}, rank {}, stage {}, {} [instruction {}]", options_.iteration,
                     world_.rank(), here_.stage, what, i);
}

std::string StageRun::stuck(const std::vector<std::size_t>& heads) const {
  std::string text = fmt::format("no progress for {:.0f} s; waiting: ", world_.timeout_seconds());
  const char* separator = "";
  for (const int i : under_way_) {
    text += separator + describe(i);
    separator = "; ";
  }
  for (int kind = 0; kind < kStreams; ++kind) {
    if (heads[kind] < queues_[kind].size()) {
      text += separator + describe(queues_[kind][heads[kind]]);
      separator = "; ";
    }
  }
  return text;
}

void StageRun::record(int i) {
  if (!options_.record_events) return;
  outcome_.events.push_back(
      event_of(program_, here_.stage, i, options_.iteration, states_[i].start, states_[i].end));
}

/// Parameter gathers run from when they were started, reductions from their layer's last backward
/// to the end; `reduced`: when all backwards were done.
void StageRun::record_reshards(double started, double reduced) {
  if (!options_.record_events) return;
  const double end = now();
  const std::vector<Instruction>& instructions = stage_->instructions;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& instruction = instructions[i];
    if (instruction.op == Op::gather_parameters) {
      states_[i].start = started;
      states_[i].end = std::clamp(flow_.gathered_seconds(instruction.layer_end - 1) - device_clock_,
                                  started, end);
      record(static_cast<int>(i));
    } else if (instruction.op == Op::reduce_gradients && backwards_) {
      const auto found = reduction_start_.find(instruction.layer_begin);
      states_[i].start = found == reduction_start_.end() ? reduced : found->second;
      states_[i].end = end;
      record(static_cast<int>(i));
    }
  }
}

}  // namespace hydraulis
