#include "sim/memory_timeline.h"

#include <algorithm>

#include "planner/program/pass_piece.h"

namespace hydraulis {
namespace {

/// Tokens that come alive (or, negative, go) at a time.
struct Change {
  double seconds = 0;
  double tokens = 0;
};

std::vector<Change> changes_of(const Program& program, const Replay& replay, std::size_t index) {
  const Stage& stage = program.stages[index];
  const PipelineProgram& pipeline = program.pipelines[stage.pipeline];
  const double layers = std::max(1, layer_count(stage));
  const bool in_parts =
      std::any_of(stage.instructions.begin(), stage.instructions.end(),
                  [](const Instruction& i) { return i.op == Op::backward_weight; });
  std::vector<Change> changes;
  for (std::size_t i = 0; i < stage.instructions.size(); ++i) {
    const Instruction& instruction = stage.instructions[i];
    const bool comes = instruction.op == Op::forward;
    const bool goes = instruction.op == (in_parts ? Op::backward_weight : Op::backward);
    if (!comes && !goes) continue;
    const MicroBatch& batch = pipeline.micro_batches[instruction.micro_batch];
    const LayerRange range = layers_of(stage, instruction.chunk);
    const double run = chunks_of(stage) == 1 ? 1 : (range.end - range.begin) / layers;
    const double share = run * piece_of(stage, instruction).share;
    const double tokens = share * static_cast<double>(batch.tokens() + batch.padding);
    changes.push_back(comes ? Change{replay.spans[index][i].start, tokens}
                            : Change{replay.spans[index][i].end, -tokens});
  }
  // The compute stream runs in order, so they stand in the order of time; at equal times what goes
  // stands first, as it does in the stream.
  return changes;
}

}  // namespace

std::vector<std::vector<MemoryPoint>> memory_timeline(const Program& program, const Replay& replay,
                                                      const CostModel& model) {
  std::vector<std::vector<MemoryPoint>> timeline;
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    const PipelineProgram& pipeline = program.pipelines[stage.pipeline];
    double largest = 0;
    for (const MicroBatch& batch : pipeline.micro_batches) {
      largest = std::max(largest, static_cast<double>(batch.tokens() + batch.padding));
    }
    double alive = 0;
    const auto now = [&](double seconds) {
      return MemoryPoint{seconds, stage_memory(model, pipeline.scheme, stage.index,
                                               std::max(0.0, alive), largest)};
    };
    std::vector<MemoryPoint> points{now(0)};
    for (const Change& change : changes_of(program, replay, s)) {
      alive += change.tokens;
      points.push_back(now(change.seconds));
    }
    timeline.push_back(std::move(points));
  }
  return timeline;
}

MemoryPeak memory_peak(const std::vector<std::vector<MemoryPoint>>& timeline) {
  MemoryPeak peak;
  double most = -1;
  for (std::size_t s = 0; s < timeline.size(); ++s) {
    for (const MemoryPoint& point : timeline[s]) {
      if (point.memory.total() <= most) continue;
      most = point.memory.total();
      peak = {static_cast<int>(s), point};
    }
  }
  return peak;
}

}  // namespace hydraulis
