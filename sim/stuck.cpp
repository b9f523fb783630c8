// Who waits for whom in a replay that ended with work left.
#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "sim/graph.h"

namespace hydraulis::detail {
namespace {

constexpr std::size_t kListed = 12;

/// Stage and instruction of every part of an activity.
using Parts = std::vector<std::pair<int, int>>;

class Diagnosis {
 public:
  Diagnosis(const Program& program, const Graph& graph, const std::vector<char>& ended)
      : program_(program), graph_(graph), ended_(ended), parts_(graph.activities()) {
    for (std::size_t s = 0; s < program.stages.size(); ++s) {
      for (std::size_t i = 0; i < program.stages[s].instructions.size(); ++i) {
        parts_[activity(static_cast<int>(s), static_cast<int>(i))].emplace_back(s, i);
      }
    }
  }

  /// First the faults themselves (an end without partner), then who waits behind them.
  std::string describe() const {
    std::vector<std::string> missing;
    std::vector<std::string> behind;
    for (std::size_t s = 0; s < program_.stages.size(); ++s) {
      std::array<bool, kStreams> seen{};
      const auto& instructions = program_.stages[s].instructions;
      for (std::size_t i = 0; i < instructions.size(); ++i) {
        const int stage = static_cast<int>(s);
        const int index = static_cast<int>(i);
        if (done(stage, index)) continue;
        bool& head_seen = seen[static_cast<std::size_t>(instructions[i].stream)];
        if (std::exchange(head_seen, true)) continue;
        const bool root = graph_.lacks_partner[activity(stage, index)] != 0;
        (root ? missing : behind)
            .push_back(instruction_name(program_, stage, index) + " waits for " +
                       reason(stage, index));
      }
    }
    missing.insert(missing.end(), behind.begin(), behind.end());
    std::string text;
    for (std::size_t i = 0; i < missing.size() && i < kListed; ++i) {
      text += (i == 0 ? "" : "; ") + missing[i];
    }
    if (missing.size() > kListed) text += fmt::format("; and {} more", missing.size() - kListed);
    return text;
  }

 private:
  std::uint32_t activity(int stage, int index) const {
    return graph_.activity[graph_.first_instruction[stage] + index];
  }
  bool done(int stage, int index) const { return ended_[activity(stage, index)] != 0; }

  /// An unfinished instruction that this one has to wait for on its own stage, or -1.
  int blocker(int stage, int index) const {
    const auto& instructions = program_.stages[stage].instructions;
    for (const int earlier : instructions[index].depends_on) {
      if (!done(stage, earlier)) return earlier;
    }
    for (int i = index - 1; i >= 0; --i) {
      if (instructions[i].stream == instructions[index].stream) return done(stage, i) ? -1 : i;
    }
    return -1;
  }

  std::string reason(int stage, int index) const {
    const Instruction& instruction = program_.stages[stage].instructions[index];
    if (graph_.lacks_partner[activity(stage, index)] != 0) return partner(stage, instruction);
    if (const int earlier = blocker(stage, index); earlier >= 0) {
      return instruction_name(program_, stage, earlier);
    }
    for (const auto& [other, part] : parts_[activity(stage, index)]) {
      if (other != stage && blocker(other, part) >= 0) {
        return instruction_name(program_, other, part);
      }
    }
    return "nothing";  // not reached: an activity that waits for nothing has started
  }

  std::string partner(int stage, const Instruction& instruction) const {
    if (is_global(instruction.op)) {
      // The first stage that never comes: it has fewer of these than the others.
      const int wanted = count(stage, instruction.op);
      for (std::size_t s = 0; s < program_.stages.size(); ++s) {
        if (count(static_cast<int>(s), instruction.op) < wanted) {
          return fmt::format("stage {}, which has no such {}", s, to_string(instruction.op));
        }
      }
      return "a stage that never comes";
    }
    return fmt::format("stage {} to {} it; there is no such {}", instruction.peer,
                       is_send(instruction.op) ? "receive" : "send",
                       is_send(instruction.op) ? "receive" : "send");
  }

  int count(int stage, Op op) const {
    int found = 0;
    for (const Instruction& instruction : program_.stages[stage].instructions) {
      found += instruction.op == op ? 1 : 0;
    }
    return found;
  }

  const Program& program_;
  const Graph& graph_;
  const std::vector<char>& ended_;
  std::vector<Parts> parts_;
};

}  // namespace

void report_stuck(const Program& program, const Graph& graph, const std::vector<char>& ended,
                  const ReplayOptions& options) {
  program_fault(options, "stuck: " + Diagnosis(program, graph, ended).describe());
}

}  // namespace hydraulis::detail
