#include "sim/graph.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace hydraulis::detail {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

void check_micro_batch(const Program& program, int stage, int index, const ReplayOptions& options) {
  const Stage& at = program.stages[stage];
  const int micro_batch = at.instructions[index].micro_batch;
  const auto count = program.pipelines[at.pipeline].micro_batches.size();
  if (micro_batch < 0 || static_cast<std::size_t>(micro_batch) >= count) {
    program_fault(options, fmt::format("{}: expected a micro-batch in [0, {})",
                                       instruction_name(program, stage, index), count));
  }
}

void check_instruction(const Program& program, int stage, int index, double seconds,
                       const ReplayOptions& options) {
  const Instruction& instruction = program.stages[stage].instructions[index];
  const auto fault = [&](const std::string& what) {
    program_fault(options, instruction_name(program, stage, index) + ": " + what);
  };
  if (!(seconds >= 0 && seconds <= std::numeric_limits<double>::max())) {
    fault(fmt::format("takes {} s; expected a finite time of at least 0", seconds));
  }
  if (static_cast<int>(instruction.stream) >= kStreams) fault("no such stream");
  for (const int earlier : instruction.depends_on) {
    if (earlier < 0 || earlier >= index) {
      fault(
          fmt::format("depends on instruction {}; expected an earlier one of its stage", earlier));
    }
  }
  if (is_send(instruction.op) || is_receive(instruction.op)) {
    const int peer = instruction.peer;
    if (peer < 0 || static_cast<std::size_t>(peer) >= program.stages.size() || peer == stage) {
      fault(fmt::format("peer is stage {}; expected another stage in [0, {})", peer,
                        program.stages.size()));
    }
  }
  switch (instruction.op) {
    case Op::forward:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
      check_micro_batch(program, stage, index, options);
      if (instruction.chunk < 0 || instruction.chunk >= chunks_of(program.stages[stage])) {
        fault(fmt::format("no run {} of the stage's layers", instruction.chunk));
      }
      break;
    default:
      break;
  }
}

void check(const Program& program, const Durations& durations, const ReplayOptions& options) {
  if (durations.seconds.size() != program.stages.size()) {
    program_fault(options, fmt::format("durations of {} stages for a program of {}",
                                       durations.seconds.size(), program.stages.size()));
  }
  std::size_t total = 0;
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    if (stage.pipeline < 0 ||
        static_cast<std::size_t>(stage.pipeline) >= program.pipelines.size()) {
      program_fault(options, fmt::format("stage {}: pipeline {}; expected one in [0, {})", s,
                                         stage.pipeline, program.pipelines.size()));
    }
    if (durations.seconds[s].size() != stage.instructions.size()) {
      program_fault(options, fmt::format("stage {}: {} durations for {} instructions", s,
                                         durations.seconds[s].size(), stage.instructions.size()));
    }
    total += stage.instructions.size();
    for (std::size_t i = 0; i < stage.instructions.size(); ++i) {
      check_instruction(program, static_cast<int>(s), static_cast<int>(i), durations.seconds[s][i],
                        options);
    }
  }
  if (total >= kNone) program_fault(options, "more than 2^32 instructions");
}

/// Joins sends to receives. A channel is one direction between two stages; its sends and receives
/// nearly always stand in the same order, which needs no search.
class Matcher {
 public:
  explicit Matcher(const Program& program)
      : program_(program), channels_of_(program.stages.size()) {}

  void add(int stage, const Instruction& instruction, std::uint32_t number) {
    const bool sends = is_send(instruction.op);
    const bool gradient =
        instruction.op == Op::send_gradient || instruction.op == Op::receive_gradient;
    Channel& channel =
        find(sends ? stage : instruction.peer, sends ? instruction.peer : stage, gradient);
    const int chunk = instruction.chunk + (sends ? 0 : chunks_back(stage, instruction.op));
    (sends ? channel.sends : channel.receives).push_back({chunk, instruction.micro_batch, number});
  }

  /// Calls join(send, receive) for pairs, and alone(number) for ends without a partner.
  template <typename Join, typename Alone>
  void match(Join&& join, Alone&& alone) {
    for (auto& channels : channels_of_) {
      for (Channel& channel : channels) match_channel(channel, join, alone);
    }
  }

 private:
  struct End {
    int chunk;  ///< of the sender
    int micro_batch;
    std::uint32_t number;
  };
  struct Channel {
    int to = 0;
    bool gradient = false;
    std::vector<End> sends;
    std::vector<End> receives;
  };

  /// From a receiver's run of layers to its sender's: the last stage's runs are followed by the
  /// next ones of the first.
  int chunks_back(int stage, Op op) const {
    const Stage& at = program_.stages[static_cast<std::size_t>(stage)];
    if (chunks_of(at) == 1) return 0;
    if (op == Op::receive_activation) return at.index == 0 ? -1 : 0;
    return at.index + 1 == program_.pipelines[at.pipeline].scheme.pp ? 1 : 0;
  }

  Channel& find(int from, int to, bool gradient) {
    for (Channel& channel : channels_of_[from]) {
      if (channel.to == to && channel.gradient == gradient) return channel;
    }
    return channels_of_[from].emplace_back(Channel{to, gradient, {}, {}});
  }

  template <typename Join, typename Alone>
  static void match_channel(Channel& channel, Join& join, Alone& alone) {
    const auto same = [](const End& a, const End& b) {
      return a.micro_batch == b.micro_batch && a.chunk == b.chunk;
    };
    const auto before = [](const End& a, const End& b) {
      return a.chunk != b.chunk ? a.chunk < b.chunk : a.micro_batch < b.micro_batch;
    };
    auto& sends = channel.sends;
    auto& receives = channel.receives;
    if (!std::equal(sends.begin(), sends.end(), receives.begin(), receives.end(), same)) {
      std::stable_sort(sends.begin(), sends.end(), before);
      std::stable_sort(receives.begin(), receives.end(), before);
    }
    auto s = sends.begin();
    auto r = receives.begin();
    while (s != sends.end() || r != receives.end()) {
      if (r == receives.end() || (s != sends.end() && before(*s, *r))) {
        alone((s++)->number);
      } else if (s == sends.end() || before(*r, *s)) {
        alone((r++)->number);
      } else {
        join((s++)->number, (r++)->number);
      }
    }
  }

  const Program& program_;
  std::vector<std::vector<Channel>> channels_of_;  ///< by sending stage
};

/// Gives every instruction its activity; transfers and collectives share one.
void join_instructions(const Program& program, Graph& graph) {
  const std::uint32_t total = graph.first_instruction.back();
  Matcher matcher(program);
  std::array<std::vector<std::vector<std::uint32_t>>, 2> meetings;  // [norm or barrier][k] → parts
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    std::array<std::size_t, 2> met{};
    std::uint32_t number = graph.first_instruction[s];
    for (const Instruction& instruction : program.stages[s].instructions) {
      if (is_send(instruction.op) || is_receive(instruction.op)) {
        matcher.add(static_cast<int>(s), instruction, number);
      } else if (is_global(instruction.op)) {
        const int kind = instruction.op == Op::barrier ? 1 : 0;
        const std::size_t k = met[kind]++;
        if (k == meetings[kind].size()) meetings[kind].emplace_back();
        meetings[kind][k].push_back(number);
      }
      ++number;
    }
  }
  // First the leader of each instruction, then activities numbered in the order of their leaders.
  std::vector<std::uint32_t> leader(total, kNone);
  std::vector<std::uint32_t> alone;
  matcher.match([&](std::uint32_t send, std::uint32_t receive) { leader[receive] = send; },
                [&](std::uint32_t number) { alone.push_back(number); });
  for (const auto& kind : meetings) {
    for (const std::vector<std::uint32_t>& parts : kind) {
      for (std::size_t i = 1; i < parts.size(); ++i) leader[parts[i]] = parts[0];
      if (parts.size() < program.stages.size()) alone.push_back(parts[0]);
    }
  }
  graph.activity.resize(total);
  std::uint32_t activities = 0;
  for (std::uint32_t i = 0; i < total; ++i) {
    if (leader[i] == kNone) graph.activity[i] = activities++;
  }
  for (std::uint32_t i = 0; i < total; ++i) {
    if (leader[i] != kNone) graph.activity[i] = graph.activity[leader[i]];
  }
  graph.waits.assign(activities, 0);
  graph.seconds.assign(activities, 0);
  graph.lacks_partner.assign(activities, 0);
  for (const std::uint32_t number : alone) {
    graph.lacks_partner[graph.activity[number]] = 1;
    ++graph.waits[graph.activity[number]];
  }
}

/// Calls edge(before, after) for stream order and depends_on, in activities.
template <typename Edge>
void for_each_edge(const Program& program, const Graph& graph, Edge&& edge) {
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const std::uint32_t first = graph.first_instruction[s];
    std::array<std::uint32_t, kStreams> last;
    last.fill(kNone);
    std::uint32_t number = first;
    for (const Instruction& instruction : program.stages[s].instructions) {
      const std::uint32_t after = graph.activity[number++];
      std::uint32_t& previous = last[static_cast<std::size_t>(instruction.stream)];
      if (previous != kNone) edge(previous, after);
      previous = after;
      for (const int earlier : instruction.depends_on) edge(graph.activity[first + earlier], after);
    }
  }
}

}  // namespace

void program_fault(const ReplayOptions& options, const std::string& message) {
  if (!options.program_file.empty()) {
    throw InputError(options.program_file + ": " + message);
  }
  throw Error(ExitCode::internal, "program: " + message);
}

std::string instruction_name(const Program& program, int stage, int instruction) {
  const Stage& at = program.stages[stage];
  const Instruction& it = at.instructions[instruction];
  std::string text = fmt::format("stage {} (pipeline {}, stage {}): {}", stage, at.pipeline,
                                 at.index, to_string(it.op));
  if (it.micro_batch >= 0) text += fmt::format(" of micro-batch {}", it.micro_batch);
  return text + fmt::format(" [instruction {}]", instruction);
}

bool is_send(Op op) { return op == Op::send_activation || op == Op::send_gradient; }
bool is_receive(Op op) { return op == Op::receive_activation || op == Op::receive_gradient; }
bool is_global(Op op) { return op == Op::gradient_norm || op == Op::barrier; }

Graph build_graph(const Program& program, const Durations& durations,
                  const ReplayOptions& options) {
  check(program, durations, options);
  Graph graph;
  graph.first_instruction.push_back(0);
  for (const Stage& stage : program.stages) {
    graph.first_instruction.push_back(graph.first_instruction.back() +
                                      static_cast<std::uint32_t>(stage.instructions.size()));
  }
  join_instructions(program, graph);
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const std::uint32_t first = graph.first_instruction[s];
    for (std::size_t i = 0; i < durations.seconds[s].size(); ++i) {
      double& seconds = graph.seconds[graph.activity[first + i]];
      seconds = std::max(seconds, durations.seconds[s][i]);
    }
  }
  graph.first_successor.assign(graph.activities() + 1, 0);
  for_each_edge(program, graph, [&](std::uint32_t before, std::uint32_t after) {
    ++graph.first_successor[before + 1];
    ++graph.waits[after];
  });
  for (std::uint32_t a = 0; a < graph.activities(); ++a) {
    graph.first_successor[a + 1] += graph.first_successor[a];
  }
  graph.successors.resize(graph.first_successor.back());
  std::vector<std::uint32_t> next(graph.first_successor.begin(), graph.first_successor.end() - 1);
  for_each_edge(program, graph, [&](std::uint32_t before, std::uint32_t after) {
    graph.successors[next[before]++] = after;
  });
  return graph;
}

}  // namespace hydraulis::detail
