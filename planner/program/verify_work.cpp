#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "planner/program/pass_piece.h"
#include "planner/program/verify.h"

namespace hydraulis::detail {
namespace {

/// Whatever must have finished before an instruction of the stage may start.
class Order {
 public:
  explicit Order(const Stage& stage) : stage_(stage), previous_(stage.instructions.size(), -1) {
    std::vector<int> last(kStreams, -1);
    for (std::size_t i = 0; i < stage.instructions.size(); ++i) {
      int& before = last[static_cast<int>(stage.instructions[i].stream)];
      previous_[i] = before;
      before = static_cast<int>(i);
    }
  }

  /// Marks everything that `instruction` waits for, at any distance inside the stage.
  std::vector<bool> ancestors(int instruction) const {
    std::vector<bool> marked(previous_.size(), false);
    std::vector<int> open{instruction};
    const auto visit = [&](int before) {
      if (before < 0 || marked[before]) return;
      marked[before] = true;
      open.push_back(before);
    };
    while (!open.empty()) {
      const int current = open.back();
      open.pop_back();
      visit(previous_[current]);
      for (const int before : stage_.instructions[current].depends_on) visit(before);
    }
    return marked;
  }

  bool waits(int instruction, int before) const {
    const Instruction& what = stage_.instructions[instruction];
    if (before < instruction && what.stream == stage_.instructions[before].stream) return true;
    const std::vector<int>& direct = what.depends_on;
    if (std::find(direct.begin(), direct.end(), before) != direct.end()) return true;
    return ancestors(instruction)[before];
  }

 private:
  const Stage& stage_;
  std::vector<int> previous_;
};

/// Where a stage does what with each micro-batch.
class StageWork {
 public:
  StageWork(const Program& program, int index, Problems& problems)
      : program_(program),
        stage_(program.stages[index]),
        index_(index),
        order_(stage_),
        problems_(problems) {
    for (std::size_t i = 0; i < stage_.instructions.size(); ++i) {
      const Instruction& instruction = stage_.instructions[i];
      where_[{instruction.op, instruction.micro_batch, instruction.chunk}].push_back(
          static_cast<int>(i));
    }
  }

  void check() {
    const PipelineProgram& pipeline = program_.pipelines[stage_.pipeline];
    const int micro_batches = static_cast<int>(pipeline.micro_batches.size());
    for (chunk_ = 0; chunk_ < chunks_of(stage_); ++chunk_) {
      for (int m = 0; m < micro_batches; ++m) check_micro_batch(m, pipeline.scheme.pp);
    }
    chunk_ = 0;
    check_ends();
  }

 private:
  /// Of the run of layers at hand.
  const std::vector<int>& all(Op op, int micro_batch) { return where_[{op, micro_batch, chunk_}]; }

  /// The only instruction of its kind, or -1 after saying what is wrong.
  int only(Op op, int micro_batch) {
    const std::vector<int>& found = all(op, micro_batch);
    if (found.size() == 1) return found.front();
    std::string what = to_string(op);
    if (micro_batch >= 0) what += fmt::format(" of micro-batch {}", micro_batch);
    problems_.add(
        fmt::format("work: stage {} has {} {} times, expected once", index_, what, found.size()));
    return -1;
  }

  /// First and last instruction of a pass, which are one unless it is in pieces.
  struct Ends {
    int first = -1;
    int last = -1;
  };

  /// A pass that goes through every layer of its run once, in order; no ends after saying what is
  /// wrong.
  Ends pass(Op op, int micro_batch) {
    const std::vector<int>& found = all(op, micro_batch);
    if (found.size() < 2) {
      const int one = only(op, micro_batch);
      if (one < 0 || covers(op, found)) return {one, one};
    } else if (covers(op, found)) {
      for (std::size_t i = 1; i < found.size(); ++i) expect_after(found[i], found[i - 1]);
      return {found.front(), found.back()};
    }
    const auto whole = [&](int i) { return piece_of(stage_, stage_.instructions[i]).share >= 1; };
    if (std::any_of(found.begin(), found.end(), whole)) {
      only(op, micro_batch);
    } else {
      const LayerRange run = layers_of(stage_, chunk_);
      problems_.add(fmt::format(
          "work: stage {}: the pieces of {} of micro-batch {} do not go through layers {} to {} "
          "once, in order",
          index_, to_string(op), micro_batch, run.begin, run.end - 1));
    }
    return {};
  }

  bool covers(Op op, const std::vector<int>& pieces) const {
    const LayerRange run = layers_of(stage_, chunk_);
    const bool ascends = op == Op::forward;
    int next = ascends ? run.begin : run.end;
    for (const int i : pieces) {
      const LayerRange layers = piece_of(stage_, stage_.instructions[i]).layers;
      if ((ascends ? layers.begin : layers.end) != next) return false;
      next = ascends ? layers.end : layers.begin;
    }
    return next == (ascends ? run.end : run.begin);
  }

  void expect_after(int later, int earlier) {
    if (later < 0 || earlier < 0 || order_.waits(later, earlier)) return;
    problems_.add(fmt::format("work: {} does not wait for {}", describe(program_, index_, later),
                              describe(program_, index_, earlier)));
  }

  void check_micro_batch(int m, int stages) {
    const bool first = stage_.index == 0 && chunk_ == 0;
    const bool last = stage_.index + 1 == stages && chunk_ + 1 == chunks_of(stage_);
    const Ends forward = pass(Op::forward, m);
    const bool in_parts =
        !all(Op::backward_input, m).empty() || !all(Op::backward_weight, m).empty();
    if (in_parts && !all(Op::backward, m).empty()) {
      problems_.add(fmt::format(
          "work: stage {} runs the backward of micro-batch {} whole and in parts", index_, m));
    }
    const Ends backward = pass(in_parts ? Op::backward_input : Op::backward, m);
    expect_after(backward.first, forward.last);
    if (in_parts) expect_after(pass(Op::backward_weight, m).first, backward.last);
    if (!first) {
      expect_after(forward.first, only(Op::receive_activation, m));
      expect_after(only(Op::send_gradient, m), backward.last);
    }
    if (!last) {
      expect_after(only(Op::send_activation, m), forward.last);
      expect_after(backward.first, only(Op::receive_gradient, m));
    }
  }

  /// A layer's parameters before its first forward, its reduction after its last backward, then
  /// norm and step.
  void check_ends() {
    const int norm = only(Op::gradient_norm, -1);
    const int phase = program_.pipelines[stage_.pipeline].phase;
    if (phase == program_.pipelines.back().phase) {
      expect_after(only(Op::optimizer_step, -1), norm);
    } else if (!all(Op::optimizer_step, -1).empty()) {
      problems_.add(
          fmt::format("work: stage {} steps the optimizer before the last phase", index_));
    }
    std::vector<int> gathers, forwards, backwards, reduces, barriers;
    for (int i = 0; i < static_cast<int>(stage_.instructions.size()); ++i) {
      switch (stage_.instructions[i].op) {
        case Op::gather_parameters:
          gathers.push_back(i);
          break;
        case Op::forward:
          forwards.push_back(i);
          break;
        case Op::backward:
        case Op::backward_weight:
          backwards.push_back(i);
          break;
        case Op::reduce_gradients:
          reduces.push_back(i);
          break;
        case Op::barrier:
          barriers.push_back(i);
          break;
        default:
          break;
      }
    }
    if (norm >= 0) expect_all_before({norm}, reduces);
    if (program_.sharding == ParameterSharding::sharded) {
      check_passes(gathers, barriers);
      return;
    }
    if (static_cast<int>(barriers.size()) >= phase) {
      barriers.resize(phase);
      expect_all_before(first_of_each_stream(forwards), barriers);
    } else {
      problems_.add(fmt::format("work: stage {} of phase {} meets the others only {} times before",
                                index_, phase, barriers.size()));
    }
    std::vector<LayerRange> seen;  // forwards whose layers have been met follow on their stream
    for (const int i : forwards) {
      const LayerRange layers = moved_with(i);
      if (std::find(seen.begin(), seen.end(), layers) != seen.end()) continue;
      seen.push_back(layers);
      expect_all_before({i}, touching(gathers, layers));
    }
    for (const int i : reduces) {
      const Instruction& reduction = stage_.instructions[i];
      expect_all_before({i}, touching(backwards, {reduction.layer_begin, reduction.layer_end}));
    }
  }

  /// Layers whose parameters or gradients an instruction uses or moves, embedding and head
  /// included.
  LayerRange moved_with(int i) const {
    const Instruction& instruction = stage_.instructions[i];
    if (instruction.stream == StreamKind::parameters) {
      return {instruction.layer_begin, instruction.layer_end};
    }
    const PassPiece piece = piece_of(stage_, instruction);
    LayerRange layers = piece.layers;
    if (stage_.has_embedding && instruction.chunk == 0 && piece.starts_run) {
      layers.begin = kEmbeddingLayer;
    }
    if (stage_.has_head && instruction.chunk + 1 == chunks_of(stage_) && piece.ends_run) {
      layers.end = program_.layers + 1;
    }
    return layers;
  }

  std::vector<int> touching(const std::vector<int>& instructions, const LayerRange& layers) const {
    std::vector<int> found;
    for (const int i : instructions) {
      const LayerRange own = moved_with(i);
      if (own.begin < layers.end && layers.begin < own.end) found.push_back(i);
    }
    return found;
  }

  /// Sharded parameters: a pass comes after one barrier more than the pass before it and after the
  /// first layer's gather of its own; no reduction ends before the backward it belongs to.
  void check_passes(const std::vector<int>& gathers, const std::vector<int>& barriers) {
    std::size_t passes = 0;
    std::size_t backwards = 0;
    const auto done_before = [&](int instruction, const std::vector<int>& of) {
      const std::vector<bool> done = order_.ancestors(instruction);
      return static_cast<std::size_t>(
          std::count_if(of.begin(), of.end(), [&](int i) { return done[i]; }));
    };
    std::vector<int> done_backwards;
    for (int i = 0; i < static_cast<int>(stage_.instructions.size()); ++i) {
      const Op op = stage_.instructions[i].op;
      if (op == Op::backward) done_backwards.push_back(i);
      if (op == Op::reduce_gradients && stage_.instructions[i].layer_begin == kEmbeddingLayer &&
          backwards < done_backwards.size()) {
        backwards = done_backwards.size();
        expect_all_before({i}, done_backwards);
      }
      if (op != Op::forward && op != Op::backward) continue;
      ++passes;
      if (done_before(i, barriers) < passes || done_before(i, gathers) < 2 * passes - 1) {
        problems_.add(fmt::format("work: {} does not wait for the gather of its first layer",
                                  describe(program_, index_, i)));
      }
    }
  }

  std::vector<int> first_of_each_stream(const std::vector<int>& instructions) const {
    std::vector<int> firsts;
    std::set<StreamKind> met;
    for (const int i : instructions) {
      if (met.insert(stage_.instructions[i].stream).second) firsts.push_back(i);
    }
    return firsts;
  }

  void expect_all_before(const std::vector<int>& later, const std::vector<int>& earlier) {
    for (const int i : later) {
      const std::vector<bool> done = order_.ancestors(i);
      for (const int before : earlier) {
        if (done[before]) continue;
        problems_.add(fmt::format("work: {} does not wait for {}", describe(program_, index_, i),
                                  describe(program_, index_, before)));
      }
    }
  }

  const Program& program_;
  const Stage& stage_;
  int index_;
  Order order_;
  Problems& problems_;
  int chunk_ = 0;  ///< the run of layers at hand
  std::map<std::tuple<Op, int, int>, std::vector<int>> where_;
};

std::vector<int> instructions_of(const Stage& stage, Op op) {
  std::vector<int> found;
  for (int i = 0; i < static_cast<int>(stage.instructions.size()); ++i) {
    if (stage.instructions[i].op == op) found.push_back(i);
  }
  return found;
}

void verify_channel(const Program& program, int sender, Op send, int receiver, Op receive,
                    Problems& problems) {
  const std::vector<int> sends = instructions_of(program.stages[sender], send);
  const std::vector<int> receives = instructions_of(program.stages[receiver], receive);
  const std::size_t pairs = std::min(sends.size(), receives.size());
  for (std::size_t i = 0; i < pairs; ++i) {
    const Instruction& out = program.stages[sender].instructions[sends[i]];
    const Instruction& in = program.stages[receiver].instructions[receives[i]];
    // From the last stage on to the first (or back) the next run of layers (or the one before).
    const int from_first = program.stages[sender].index == 0 ? 1 : 0;
    const int to_first = program.stages[receiver].index == 0 ? 1 : 0;
    const int next = send == Op::send_activation ? to_first : -from_first;
    if (out.micro_batch != in.micro_batch || out.chunk + next != in.chunk) {
      problems.add(fmt::format("messages: {} meets {}, which is another micro-batch",
                               describe(program, sender, sends[i]),
                               describe(program, receiver, receives[i])));
      return;
    }
    if (out.intra_node_bytes != in.intra_node_bytes ||
        out.inter_node_bytes != in.inter_node_bytes) {
      problems.add(fmt::format(
          "messages: {} sends {} bytes and {} receives {}", describe(program, sender, sends[i]),
          out.intra_node_bytes + out.inter_node_bytes, describe(program, receiver, receives[i]),
          in.intra_node_bytes + in.inter_node_bytes));
    }
  }
  for (std::size_t i = pairs; i < sends.size(); ++i) {
    problems.add(fmt::format("messages: {} has no receive", describe(program, sender, sends[i])));
  }
  for (std::size_t i = pairs; i < receives.size(); ++i) {
    problems.add(fmt::format("messages: {} has no send", describe(program, receiver, receives[i])));
  }
}

}  // namespace

void verify_work(const Program& program, Problems& problems) {
  for (int i = 0; i < static_cast<int>(program.stages.size()); ++i) {
    StageWork(program, i, problems).check();
  }
}

void verify_messages(const Program& program, Problems& problems) {
  for (const PipelineProgram& pipeline : program.pipelines) {
    const int stages = pipeline.scheme.pp;
    const bool goes_round = chunks_of(program.stages[pipeline.first_stage]) > 1;
    for (int s = 0; s + (goes_round ? 0 : 1) < stages; ++s) {
      const int here = pipeline.first_stage + s;
      const int next = pipeline.first_stage + (s + 1) % stages;
      verify_channel(program, here, Op::send_activation, next, Op::receive_activation, problems);
      verify_channel(program, next, Op::send_gradient, here, Op::receive_gradient, problems);
    }
  }
}

}  // namespace hydraulis::detail
