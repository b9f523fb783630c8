#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "planner/program/verify.h"

namespace hydraulis::detail {
namespace {

bool is_message(Op op) {
  return op == Op::send_activation || op == Op::receive_activation || op == Op::send_gradient ||
         op == Op::receive_gradient;
}

/// Collectives that end only when every stage of the program has come to them.
bool is_global(Op op) { return op == Op::gradient_norm || op == Op::barrier; }

Op counterpart(Op op) {
  switch (op) {
    case Op::send_activation:
      return Op::receive_activation;
    case Op::receive_activation:
      return Op::send_activation;
    case Op::send_gradient:
      return Op::receive_gradient;
    default:
      return Op::send_gradient;
  }
}

/// Runs a program in no time at all, under rendezvous semantics, to see whether it ends.
class Rehearsal {
 public:
  explicit Rehearsal(const Program& program) : program_(program) {
    const std::size_t stages = program.stages.size();
    queues_.resize(stages);
    heads_.resize(stages);
    done_.resize(stages);
    pending_.assign(stages, true);
    for (std::size_t s = 0; s < stages; ++s) {
      heads_[s].fill(0);
      done_[s].assign(program.stages[s].instructions.size(), false);
      for (std::size_t i = 0; i < program.stages[s].instructions.size(); ++i) {
        const Instruction& instruction = program.stages[s].instructions[i];
        queues_[s][static_cast<int>(instruction.stream)].push_back(static_cast<int>(i));
      }
      open_.push_back(static_cast<int>(s));
    }
  }

  void run() {
    while (!open_.empty()) {
      const int stage = open_.back();
      open_.pop_back();
      pending_[stage] = false;
      while (advance(stage)) {
      }
    }
  }

  void report(Problems& problems) const {
    std::vector<std::string> waiting;
    std::pair<int, int> start{-1, -1};
    for (int s = 0; s < static_cast<int>(program_.stages.size()); ++s) {
      for (int q = 0; q < kStreams; ++q) {
        const int head = head_of(s, q);
        if (head < 0) continue;
        if (start.first < 0) start = {s, head};
        waiting.push_back(describe(program_, s, head) + " waits for " + waits_for(s, head).second);
      }
    }
    if (waiting.empty()) return;
    problems.add("deadlock: " + cycle(start));
    for (const std::string& line : waiting) problems.add("deadlock: " + line);
  }

 private:
  int head_of(int stage, int queue) const {
    const std::vector<int>& instructions = queues_[stage][queue];
    const std::size_t head = heads_[stage][queue];
    return head < instructions.size() ? instructions[head] : -1;
  }

  bool dependencies_done(int stage, int instruction) const {
    const auto& before = program_.stages[stage].instructions[instruction].depends_on;
    return std::all_of(before.begin(), before.end(), [&](int i) { return done_[stage][i]; });
  }

  void finish(int stage, int instruction) {
    done_[stage][instruction] = true;
    ++heads_[stage][static_cast<int>(program_.stages[stage].instructions[instruction].stream)];
    if (!pending_[stage]) {
      pending_[stage] = true;
      open_.push_back(stage);
    }
  }

  /// The other side's instruction at the head of a stream that could meet this message, or -1.
  int ready_partner(const Instruction& message, int stage) const {
    for (int q = 0; q < kStreams; ++q) {
      const int head = head_of(message.peer, q);
      if (head < 0) continue;
      const Instruction& other = program_.stages[message.peer].instructions[head];
      if (other.op == counterpart(message.op) && other.peer == stage &&
          dependencies_done(message.peer, head)) {
        return head;
      }
    }
    return -1;
  }

  /// Heads of all stages that stand at the same kind of global collective, or none.
  std::vector<int> all_arrived(Op op) const {
    std::vector<int> heads;
    for (int s = 0; s < static_cast<int>(program_.stages.size()); ++s) {
      int arrived = -1;
      for (int q = 0; q < kStreams && arrived < 0; ++q) {
        const int head = head_of(s, q);
        if (head >= 0 && program_.stages[s].instructions[head].op == op &&
            dependencies_done(s, head)) {
          arrived = head;
        }
      }
      if (arrived < 0) return {};
      heads.push_back(arrived);
    }
    return heads;
  }

  bool advance(int stage) {
    for (int q = 0; q < kStreams; ++q) {
      const int head = head_of(stage, q);
      if (head < 0 || !dependencies_done(stage, head)) continue;
      const Instruction& instruction = program_.stages[stage].instructions[head];
      if (is_message(instruction.op)) {
        const int partner = ready_partner(instruction, stage);
        if (partner < 0) continue;
        finish(instruction.peer, partner);
        finish(stage, head);
        return true;
      }
      if (is_global(instruction.op)) {
        const std::vector<int> heads = all_arrived(instruction.op);
        if (heads.empty()) continue;
        for (std::size_t s = 0; s < heads.size(); ++s) finish(static_cast<int>(s), heads[s]);
        return true;
      }
      finish(stage, head);
      return true;
    }
    return false;
  }

  /// What an unfinished instruction waits for: the place to look next, and in words.
  std::pair<std::pair<int, int>, std::string> waits_for(int stage, int instruction) const {
    const Instruction& what = program_.stages[stage].instructions[instruction];
    const auto named = [&](int s, int i) {
      return std::pair(std::pair(s, i), describe(program_, s, i));
    };
    if (const int head = head_of(stage, static_cast<int>(what.stream)); head != instruction) {
      return named(stage, head);
    }
    for (const int before : what.depends_on) {
      if (!done_[stage][before]) return named(stage, before);
    }
    if (is_message(what.op)) {
      const auto& others = program_.stages[what.peer].instructions;
      for (int i = 0; i < static_cast<int>(others.size()); ++i) {
        const bool meets = others[i].op == counterpart(what.op) && others[i].peer == stage;
        if (meets && !done_[what.peer][i]) return named(what.peer, i);
      }
      return {{-1, -1},
              fmt::format("a {} on stage {} that does not exist", to_string(counterpart(what.op)),
                          what.peer)};
    }
    for (int s = 0; s < static_cast<int>(program_.stages.size()); ++s) {
      const auto& others = program_.stages[s].instructions;
      bool arrived = false;
      for (int i = 0; i < static_cast<int>(others.size()) && !arrived; ++i) {
        if (others[i].op != what.op || done_[s][i]) continue;
        arrived = head_of(s, static_cast<int>(others[i].stream)) == i && dependencies_done(s, i);
        if (!arrived) return named(s, i);
      }
      if (!arrived) {
        return {{-1, -1},
                fmt::format("stage {}, which never comes to a {}", s, to_string(what.op))};
      }
    }
    return {{-1, -1}, "nothing"};
  }

  /// Follows the waiting from one instruction until it bites its tail or finds a missing partner.
  std::string cycle(std::pair<int, int> at) const {
    std::vector<std::pair<int, int>> path;
    std::set<std::pair<int, int>> met;
    while (at.first >= 0 && met.insert(at).second) {
      path.push_back(at);
      at = waits_for(at.first, at.second).first;
    }
    const bool closed = at.first >= 0;
    auto from = closed ? std::find(path.begin(), path.end(), at) : path.begin();
    std::string text = closed ? "a circle of waiting: " : "a wait without end: ";
    for (; from != path.end(); ++from) {
      text += describe(program_, from->first, from->second) + " waits for ";
    }
    return text + (closed ? describe(program_, at.first, at.second)
                          : waits_for(path.back().first, path.back().second).second);
  }

  const Program& program_;
  std::vector<std::array<std::vector<int>, kStreams>> queues_;
  std::vector<std::array<std::size_t, kStreams>> heads_;
  std::vector<std::vector<bool>> done_;
  std::vector<bool> pending_;
  std::vector<int> open_;
};

/// A launch of the exchange of a layer's parameters or gradients, in which all its owners and all
/// stages that hold the layer take part: op, layers, and the how-manieth of its kind on its stage.
using Launch = std::tuple<Op, int, int, int>;

std::string name(const Launch& launch) {
  const auto& [op, begin, end, count] = launch;
  return fmt::format("{} of layers {} to {}", to_string(op), begin, end - 1);
}

}  // namespace

void verify_progress(const Program& program, Problems& problems) {
  Rehearsal rehearsal(program);
  rehearsal.run();
  rehearsal.report(problems);
}

void verify_launch_order(const Program& program, Problems& problems) {
  // Every device may own a share of every layer, so it launches all exchanges: there must be one
  // order of launches that agrees with the order on each stage. Sort topologically.
  std::map<Launch, std::set<Launch>> after;
  std::map<Launch, int> waiting;
  std::vector<Op> first_collectives;
  for (int s = 0; s < static_cast<int>(program.stages.size()); ++s) {
    std::map<std::tuple<Op, int, int>, int> counts;
    std::vector<Op> collectives;
    const Launch* last = nullptr;
    for (const Instruction& instruction : program.stages[s].instructions) {
      if (is_global(instruction.op)) collectives.push_back(instruction.op);
      if (instruction.op != Op::gather_parameters && instruction.op != Op::reduce_gradients) {
        continue;
      }
      const int count = counts[{instruction.op, instruction.layer_begin, instruction.layer_end}]++;
      const auto node =
          waiting
              .try_emplace({instruction.op, instruction.layer_begin, instruction.layer_end, count},
                           0)
              .first;
      if (last != nullptr && after[*last].insert(node->first).second) ++node->second;
      last = &node->first;
    }
    if (s == 0) first_collectives = collectives;
    if (collectives != first_collectives) {
      problems.add(
          fmt::format("communicators: stages 0 and {} launch the collectives of all devices in "
                      "different orders",
                      s));
    }
  }
  std::vector<Launch> open;
  for (const auto& [launch, count] : waiting) {
    if (count == 0) open.push_back(launch);
  }
  std::size_t launched = 0;
  while (!open.empty()) {
    const Launch launch = open.back();
    open.pop_back();
    ++launched;
    for (const Launch& next : after[launch]) {
      if (--waiting[next] == 0) open.push_back(next);
    }
  }
  if (launched == waiting.size()) return;
  std::string stuck;
  for (const auto& [launch, count] : waiting) {
    if (count > 0) stuck += (stuck.empty() ? "" : ", ") + name(launch);
  }
  problems.add("communicators: stages launch these in orders that contradict each other: " + stuck);
}

}  // namespace hydraulis::detail
