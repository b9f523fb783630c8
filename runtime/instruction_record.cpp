#include "runtime/instruction_record.h"

namespace hydraulis {

TimelineEvent event_of(const Program& program, int stage, int instruction, int iteration,
                       double start_seconds, double end_seconds) {
  const Instruction& of = program.stages[stage].instructions[instruction];
  TimelineEvent event;
  event.iteration = iteration;
  event.stage = stage;
  event.instruction = instruction;
  event.op = of.op;
  event.stream = of.stream;
  event.micro_batch = of.micro_batch;
  event.start_seconds = start_seconds;
  event.end_seconds = end_seconds;
  event.bytes = of.intra_node_bytes + of.inter_node_bytes;
  return event;
}

void record_together(const Backend& backend, const Program& program, const ExecuteOptions& options,
                     Op op, int number, std::chrono::steady_clock::time_point start,
                     IterationOutcome& outcome) {
  if (!options.record_events) return;
  const auto seconds = [&](std::chrono::steady_clock::time_point at) {
    return std::chrono::duration<double>(at - outcome.began).count();
  };
  const double end = seconds(std::chrono::steady_clock::now());
  for (int s = 0; s < static_cast<int>(program.stages.size()); ++s) {
    const Stage& stage = program.stages[s];
    if (stage.devices.front() != backend.world->rank()) continue;
    int met = 0;
    for (int i = 0; i < static_cast<int>(stage.instructions.size()); ++i) {
      if (stage.instructions[i].op != op || met++ != number) continue;
      outcome.events.push_back(event_of(program, s, i, options.iteration, seconds(start), end));
    }
  }
}

}  // namespace hydraulis
