#include "sim/replay.h"

namespace hydraulis {

Timeline make_timeline(const Program& program, const Replay& replay, int iteration) {
  Timeline timeline;
  timeline.origin = "simulated";
  timeline.model_name = program.model_name;
  timeline.tracks = timeline_tracks(program);
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const auto& instructions = program.stages[s].instructions;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      const Instruction& instruction = instructions[i];
      TimelineEvent event;
      event.iteration = iteration;
      event.stage = static_cast<int>(s);
      event.instruction = static_cast<int>(i);
      event.op = instruction.op;
      event.stream = instruction.stream;
      event.micro_batch = instruction.micro_batch;
      event.start_seconds = replay.spans[s][i].start;
      event.end_seconds = replay.spans[s][i].end;
      event.bytes = instruction.intra_node_bytes + instruction.inter_node_bytes;
      timeline.events.push_back(event);
    }
  }
  return timeline;
}

}  // namespace hydraulis
