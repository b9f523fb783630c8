#include "runtime/memory_estimate.h"

#include <algorithm>

namespace hydraulis {

NumberBytes runtime_numbers(DataType type) {
  const auto bytes = static_cast<double>(size_of(type));
  return {bytes, bytes, bytes, bytes, 4 * bytes};
}

StageMemory estimate_stage_memory(const CostModel& model, const Program& program, int stage) {
  const Stage& here = program.stages[stage];
  const PipelineProgram& pipeline = program.pipelines[here.pipeline];
  const auto tokens = [&](int micro_batch) {
    const MicroBatch& batch = pipeline.micro_batches[micro_batch];
    return static_cast<double>(batch.tokens() + batch.padding);
  };
  double live = 0;
  double most = 0;
  double largest = 0;
  for (const Instruction& instruction : here.instructions) {
    if (instruction.op == Op::forward) {
      live += tokens(instruction.micro_batch);
      most = std::max(most, live);
      largest = std::max(largest, tokens(instruction.micro_batch));
    } else if (instruction.op == Op::backward) {
      live -= tokens(instruction.micro_batch);
    }
  }
  return stage_memory(model, pipeline.scheme, here.index, most, largest);
}

StageMemory estimate_memory(const CostModel& model, const Program& program) {
  StageMemory fullest;
  for (std::size_t stage = 0; stage < program.stages.size(); ++stage) {
    const StageMemory memory = estimate_stage_memory(model, program, static_cast<int>(stage));
    if (memory.total() > fullest.total()) fullest = memory;
  }
  return fullest;
}

}  // namespace hydraulis
