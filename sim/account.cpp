// What each stage did with its time and memory, from the spans of its instructions.
#include <algorithm>
#include <cmath>

#include "planner/program/pass_piece.h"
#include "sim/graph.h"

namespace hydraulis::detail {
namespace {

/// Of sums of parts of whole tokens.
constexpr double kRounding = 1e-6;

std::uint64_t all_tokens(const MicroBatch& micro_batch) {
  return micro_batch.tokens() + micro_batch.padding;
}

void account_time(const Stage& stage, const std::vector<Span>& spans, double makespan,
                  std::vector<Span>& moving, StageReplay& result) {
  moving.clear();
  std::vector<Span> computing;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (!(spans[i].end > spans[i].start)) continue;
    if (stage.instructions[i].stream == StreamKind::compute) {
      computing.push_back(spans[i]);
      result.compute_seconds += spans[i].end - spans[i].start;
    } else {
      moving.push_back(spans[i]);
    }
  }
  std::sort(moving.begin(), moving.end(), [](const Span& a, const Span& b) {
    return a.start != b.start ? a.start < b.start : a.end < b.end;
  });
  // Walk the union of the transfers and take away what lies under computing (itself in order).
  std::size_t c = 0;
  double covered_to = 0;
  for (const Span& span : moving) {
    const double start = std::max(span.start, covered_to);
    if (span.end <= start) continue;
    result.communication_seconds += span.end - start;
    double exposed = span.end - start;
    while (c < computing.size() && computing[c].end <= start) ++c;
    for (std::size_t k = c; k < computing.size() && computing[k].start < span.end; ++k) {
      exposed -= std::min(computing[k].end, span.end) - std::max(computing[k].start, start);
    }
    result.exposed_communication_seconds += std::max(0.0, exposed);
    covered_to = span.end;
  }
  result.idle_seconds =
      std::max(0.0, makespan - result.compute_seconds - result.exposed_communication_seconds);
}

/// Compute runs in order, so the order of instructions is the order of time.
void account_live(const Stage& stage, const std::vector<std::uint64_t>& tokens,
                  StageReplay& result) {
  const bool splits_backward = std::any_of(
      stage.instructions.begin(), stage.instructions.end(),
      [](const Instruction& instruction) { return instruction.op == Op::backward_weight; });
  const Op last = splits_backward ? Op::backward_weight : Op::backward;
  const double layers = std::max(1, layer_count(stage));
  const auto chunks = static_cast<std::size_t>(chunks_of(stage));
  int live = 0;
  double live_tokens = 0;
  double most_tokens = 0;
  std::vector<char> alive(tokens.size() * chunks, 0);
  for (const Instruction& instruction : stage.instructions) {
    const bool begins = instruction.op == Op::forward;
    const bool ends = instruction.op == last || instruction.op == Op::backward;
    if (!begins && !ends) continue;
    // A pass in pieces holds its run's activations from its first piece to the last.
    if (ends && !piece_of(stage, instruction).starts_run) continue;
    const auto batch = static_cast<std::size_t>(instruction.micro_batch);
    char& state = alive[batch * chunks + static_cast<std::size_t>(instruction.chunk)];
    if (begins == (state != 0)) continue;
    state = begins ? 1 : 0;
    const LayerRange range = layers_of(stage, instruction.chunk);
    const double share = chunks == 1 ? 1 : (range.end - range.begin) / layers;
    const double size = share * static_cast<double>(tokens[batch]);
    live += begins ? 1 : -1;
    live_tokens += begins ? size : -size;
    result.peak_live_micro_batches = std::max(result.peak_live_micro_batches, live);
    most_tokens = std::max(most_tokens, live_tokens);
  }
  result.peak_live_tokens = static_cast<std::uint64_t>(std::ceil(most_tokens - kRounding));
}

}  // namespace

void account(const Program& program, const ReplayOptions& options, Replay& replay) {
  std::vector<std::vector<std::uint64_t>> tokens;
  for (const PipelineProgram& pipeline : program.pipelines) {
    auto& of_pipeline = tokens.emplace_back();
    for (const MicroBatch& batch : pipeline.micro_batches) of_pipeline.push_back(all_tokens(batch));
  }
  std::vector<Span> scratch;
  replay.stages.resize(program.stages.size());
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    const std::vector<std::uint64_t>& sizes = tokens[stage.pipeline];
    StageReplay& result = replay.stages[s];
    account_time(stage, replay.spans[s], replay.makespan_seconds, scratch, result);
    account_live(stage, sizes, result);
    if (options.memory_model != nullptr) {
      const std::uint64_t largest =
          sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
      result.memory_bytes =
          stage_memory(*options.memory_model, program.pipelines[stage.pipeline].scheme, stage.index,
                       static_cast<double>(result.peak_live_tokens), static_cast<double>(largest))
              .total();
    }
  }
}

}  // namespace hydraulis::detail
