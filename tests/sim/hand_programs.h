#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/program/program.h"
#include "sim/replay.h"

namespace hydraulis::testing {

/// Programs built without the planner's lowering, as an independent check of it: one pipeline, one
/// device a stage, forwards, backwards and the transfers between them.
class HandPipeline {
 public:
  /// `gpipe`: all forwards, then all backwards; otherwise 1F1B.
  HandPipeline(int stages, int micro_batches, bool gpipe) {
    program.devices = stages;
    program.devices_per_node = stages;
    PipelineProgram pipeline;
    pipeline.scheme.pp = stages;
    for (int m = 0; m < micro_batches; ++m) {
      pipeline.micro_batches.push_back({{static_cast<std::uint64_t>(m)}, {1000}, 0});
    }
    program.pipelines.push_back(pipeline);
    for (int s = 0; s < stages; ++s) add_stage(s, stages, micro_batches, gpipe);
  }

  /// Forward w, backward `ratio`·w, every transfer `transfer` seconds.
  Durations durations(const std::vector<double>& weights, double ratio, double transfer = 0) const {
    Durations result;
    for (const Stage& stage : program.stages) {
      auto& seconds = result.seconds.emplace_back();
      for (const Instruction& instruction : stage.instructions) {
        const double weight = weights[instruction.micro_batch];
        seconds.push_back(instruction.op == Op::forward    ? weight
                          : instruction.op == Op::backward ? ratio * weight
                                                           : transfer);
      }
    }
    return result;
  }

  Program program;

 private:
  int add(Stage& stage, Op op, StreamKind stream, int micro_batch, int peer,
          std::vector<int> depends_on) {
    Instruction instruction;
    instruction.op = op;
    instruction.stream = stream;
    instruction.micro_batch = micro_batch;
    instruction.peer = peer;
    instruction.depends_on = std::move(depends_on);
    stage.instructions.push_back(instruction);
    return static_cast<int>(stage.instructions.size()) - 1;
  }

  void forward(Stage& stage, int s, int stages, int m) {
    std::vector<int> after;
    if (s > 0) {
      after = {add(stage, Op::receive_activation, StreamKind::activation_receive, m, s - 1, {})};
    }
    const int at = add(stage, Op::forward, StreamKind::compute, m, -1, after);
    if (s + 1 < stages) {
      add(stage, Op::send_activation, StreamKind::activation_send, m, s + 1, {at});
    }
  }

  void backward(Stage& stage, int s, int stages, int m) {
    std::vector<int> after;
    if (s + 1 < stages) {
      after = {add(stage, Op::receive_gradient, StreamKind::gradient_receive, m, s + 1, {})};
    }
    const int at = add(stage, Op::backward, StreamKind::compute, m, -1, after);
    if (s > 0) add(stage, Op::send_gradient, StreamKind::gradient_send, m, s - 1, {at});
  }

  void add_stage(int s, int stages, int micro_batches, bool gpipe) {
    Stage stage;
    stage.index = s;
    stage.devices = {s};
    // Backward k runs as soon as the stage has begun `ahead` more forwards, or all there are.
    const int ahead = gpipe ? micro_batches : stages - s;
    int next_forward = 0;
    for (int k = 0; k < micro_batches; ++k) {
      while (next_forward < std::min(k + ahead, micro_batches)) {
        forward(stage, s, stages, next_forward++);
      }
      backward(stage, s, stages, k);
    }
    program.stages.push_back(std::move(stage));
  }
};

/// w = 0.25 + 1.5·⌊x/256⌋/2²⁴ with x ← 1664525·x + 1013904223 mod 2³², x₀ = 12345, advanced first.
inline std::vector<double> drawn_weights(int count) {
  std::vector<double> weights;
  std::uint32_t x = 12345;
  for (int i = 0; i < count; ++i) {
    x = 1664525U * x + 1013904223U;
    weights.push_back(0.25 + 1.5 * static_cast<double>(x >> 8U) / 16777216.0);
  }
  return weights;
}

}  // namespace hydraulis::testing
