#include "runtime/memory_estimate.h"

#include <algorithm>

#include "kernels/compute.h"

namespace hydraulis {
namespace {

/// What the runtime needs beside the composed model's kinds, with `live` and `largest` tokens on
/// one device: rotary tables of live micro-batches, the head's input, norm and gradient, and the
/// operands that the widest product (a weight gradient over all tokens) rearranges.
StageMemory with_runtime_buffers(StageMemory memory, const CostModel& model, const Scheme& scheme,
                                 bool has_head, double live, double largest) {
  const ModelSpec& spec = model.model;
  const double bytes = model.numbers.activation;
  memory.activations += bytes * spec.head_dim * live;
  double widest = 2.0 * spec.ffn_hidden / scheme.tp;
  if (has_head) {
    memory.logits += bytes * spec.hidden * largest * (2.0 / scheme.tp + 1);
    widest = std::max(widest, static_cast<double>(spec.vocab) / scheme.tp);
  }
  if (bytes < 4) {  // on GPUs, whose products take this much workspace at most
    memory.buffers += 32 << 20;
    return memory;
  }
  constexpr auto most = static_cast<double>(kCpuProductElements);
  memory.buffers += bytes * (std::min(most, widest * largest) +
                             std::min(most, static_cast<double>(spec.hidden) * largest));
  return memory;
}

}  // namespace

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
  const Scheme& scheme = pipeline.scheme;
  StageMemory memory =
      with_runtime_buffers(stage_memory(model, scheme, here.index, most, largest), model, scheme,
                           here.has_head, most / scheme.cp, largest / scheme.cp);
  if (scheme.recompute == Recompute::full) {
    // The head's memory has gone back when the first layer is computed again.
    const double kept = stage_memory(model, scheme, here.index, most, 0).activations;
    const double layer = stage_memory(model, scheme, here.index, most, largest).activations - kept;
    memory.logits = std::max(0.0, memory.logits - layer);
  }
  return memory;
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
