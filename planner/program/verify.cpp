#include "planner/program/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "planner/program/pass_piece.h"

namespace hydraulis {

namespace {

/// Whether the other checks make sense.
bool verify_without_memory(const Program& program, detail::Problems& problems) {
  detail::verify_structure(program, problems);
  if (!problems.empty()) return false;
  detail::verify_layers(program, problems);
  detail::verify_work(program, problems);
  detail::verify_messages(program, problems);
  detail::verify_progress(program, problems);
  detail::verify_launch_order(program, problems);
  return true;
}

}  // namespace

std::vector<std::string> verify(const Program& program, const CostModel& model,
                                const Batch* batch) {
  detail::Problems problems;
  if (!verify_without_memory(program, problems)) return problems.take();
  detail::verify_memory(program, model, problems);
  if (batch != nullptr) detail::verify_sequences(program, *batch, problems);
  return problems.take();
}

std::vector<std::string> verify(const Program& program) {
  detail::Problems problems;
  verify_without_memory(program, problems);
  return problems.take();
}

namespace detail {
namespace {

constexpr std::size_t kMostProblems = 100;

double tokens_of(const MicroBatch& micro_batch) {
  return static_cast<double>(micro_batch.tokens() + micro_batch.padding);
}

/// Most tokens and most micro-batches whose forward has run and whose backward has not. On one of
/// several runs of layers a micro-batch counts with that run's part of the stage's layers.
struct Alive {
  double tokens = 0;
  int micro_batches = 0;
};

Alive most_alive(const PipelineProgram& pipeline, const Stage& stage) {
  Alive now, most;
  const double layers = std::max(1, layer_count(stage));
  for (const Instruction& instruction : stage.instructions) {
    const bool opens = instruction.op == Op::forward;
    const bool closes = instruction.op == Op::backward || instruction.op == Op::backward_weight;
    if (!opens && !closes) continue;
    // A pass in pieces holds its run from its first piece on (forwards ascend) to its last.
    if (!piece_of(stage, instruction).starts_run) continue;
    const LayerRange range = layers_of(stage, instruction.chunk);
    const double tokens = tokens_of(pipeline.micro_batches[instruction.micro_batch]) *
                          ((range.end - range.begin) / layers);
    now.tokens += opens ? tokens : -tokens;
    now.micro_batches += opens ? 1 : -1;
    most.tokens = std::max(most.tokens, now.tokens);
    most.micro_batches = std::max(most.micro_batches, now.micro_batches);
  }
  return most;
}

void verify_published_memory(const Program& program, const CostModel& model, int index,
                             Problems& problems) {
  const PipelineProgram& pipeline = program.pipelines[index];
  const auto limit = static_cast<double>(max_tokens(model, pipeline.scheme));
  for (std::size_t i = 0; i < pipeline.micro_batches.size(); ++i) {
    const double tokens = tokens_of(pipeline.micro_batches[i]);
    if (tokens > limit) {
      problems.add(
          fmt::format("memory: pipeline {} {}: micro-batch {} has {:.0f} tokens, {:.0f} over the "
                      "limit of {:.0f}",
                      index, to_string(pipeline.scheme), i, tokens, tokens - limit, limit));
    }
  }
  // The published formula holds with pp micro-batches alive, so that is the budget.
  for (int s = 0; s < pipeline.scheme.pp; ++s) {
    const Alive alive = most_alive(pipeline, program.stages[pipeline.first_stage + s]);
    const double budget = limit * pipeline.scheme.pp;
    if (alive.tokens > budget) {
      problems.add(
          fmt::format("memory: stage {} of pipeline {} {}: {:.0f} tokens of {} micro-batches are "
                      "alive at once, "
                      "{:.0f} over the limit of {:.0f}",
                      s, index, to_string(pipeline.scheme), alive.tokens, alive.micro_batches,
                      alive.tokens - budget, budget));
    }
  }
}

void verify_composed_memory(const Program& program, const CostModel& model, int index,
                            Problems& problems) {
  const PipelineProgram& pipeline = program.pipelines[index];
  double largest = 0;
  for (const MicroBatch& micro_batch : pipeline.micro_batches) {
    largest = std::max(largest, tokens_of(micro_batch));
  }
  const double limit = memory_limit_bytes(model, pipeline.scheme.group);
  for (int s = 0; s < pipeline.scheme.pp; ++s) {
    const Alive alive = most_alive(pipeline, program.stages[pipeline.first_stage + s]);
    const double bytes = stage_memory(model, pipeline.scheme, s, alive.tokens, largest).total();
    if (bytes > limit) {
      problems.add(fmt::format(
          "memory: stage {} of pipeline {} {}: {:.0f} bytes a device with {:.0f} tokens of {} "
          "micro-batches alive, {:.0f} over the limit of {:.0f}",
          s, index, to_string(pipeline.scheme), bytes, alive.tokens, alive.micro_batches,
          bytes - limit, limit));
    }
  }
}

}  // namespace

void Problems::add(std::string problem) {
  if (lines_.size() < kMostProblems) {
    lines_.push_back(std::move(problem));
  } else {
    ++left_out_;
  }
}

std::vector<std::string> Problems::take() {
  if (left_out_ > 0) lines_.push_back(fmt::format("and {} more problems", left_out_));
  left_out_ = 0;
  return std::move(lines_);
}

std::string describe(const Program& program, int stage, int instruction) {
  const Stage& place = program.stages[stage];
  const Instruction& what = place.instructions[instruction];
  std::string text =
      fmt::format("stage {} (pipeline {}): {}", stage, place.pipeline, to_string(what.op));
  if (what.micro_batch >= 0) text += fmt::format(" of micro-batch {}", what.micro_batch);
  if (what.op == Op::gather_parameters || what.op == Op::reduce_gradients) {
    text += fmt::format(" of layers {} to {}", what.layer_begin, what.layer_end - 1);
  }
  return text + fmt::format(" [instruction {}]", instruction);
}

void verify_memory(const Program& program, const CostModel& model, Problems& problems) {
  for (int i = 0; i < static_cast<int>(program.pipelines.size()); ++i) {
    try {
      if (model.memory == MemoryModel::published) {
        verify_published_memory(program, model, i, problems);
      } else {
        verify_composed_memory(program, model, i, problems);
      }
    } catch (const Error& error) {
      problems.add(fmt::format("memory: pipeline {}: {}", i, error.what()));
    }
  }
}

void verify_sequences(const Program& program, const Batch& batch, Problems& problems) {
  std::map<std::uint64_t, std::uint32_t> expected;
  for (std::size_t i = 0; i < batch.ids.size() && i < batch.lengths.size(); ++i) {
    if (!expected.emplace(batch.ids[i], batch.lengths[i]).second) {
      problems.add(fmt::format("sequences: the batch names sequence {} twice", batch.ids[i]));
    }
  }
  std::map<std::uint64_t, std::size_t> seen;  // id → pipeline that trains it
  for (std::size_t p = 0; p < program.pipelines.size(); ++p) {
    for (const MicroBatch& micro_batch : program.pipelines[p].micro_batches) {
      for (std::size_t i = 0; i < micro_batch.sequence_ids.size(); ++i) {
        const std::uint64_t id = micro_batch.sequence_ids[i];
        const auto wanted = expected.find(id);
        if (wanted == expected.end()) {
          problems.add(fmt::format(
              "sequences: pipeline {} trains sequence {}, which the batch does not have", p, id));
        } else if (wanted->second != micro_batch.lengths[i]) {
          problems.add(fmt::format(
              "sequences: pipeline {} trains sequence {} with {} tokens, the batch has {}", p, id,
              micro_batch.lengths[i], wanted->second));
        }
        const auto [first, is_new] = seen.emplace(id, p);
        if (!is_new) {
          problems.add(fmt::format("sequences: sequence {} is trained twice (pipelines {} and {})",
                                   id, first->second, p));
        }
      }
    }
  }
  for (const auto& [id, length] : expected) {
    if (!seen.contains(id)) {
      problems.add(
          fmt::format("sequences: no pipeline trains sequence {} ({} tokens)", id, length));
    }
  }
}

}  // namespace detail
}  // namespace hydraulis
