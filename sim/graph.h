#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/program/program.h"
#include "sim/replay.h"

namespace hydraulis::detail {

/// The program as a graph of activities: one an instruction, except that a send and its receive are
/// one, and so are the parts of a collective. An activity starts when all its predecessors (stream
/// order and depends_on of each of its instructions) have ended.
struct Graph {
  std::vector<std::uint32_t> first_instruction;  ///< of each stage, in one numbering; plus the end
  std::vector<std::uint32_t> activity;           ///< of each instruction
  std::vector<std::uint32_t> waits;            ///< predecessors of each activity; +1 if incomplete
  std::vector<double> seconds;                 ///< of each activity
  std::vector<std::uint32_t> first_successor;  ///< of each activity, into successors; plus the end
  std::vector<std::uint32_t> successors;
  std::vector<char> lacks_partner;  ///< activity: a send or receive or collective part is missing

  std::uint32_t activities() const { return static_cast<std::uint32_t>(waits.size()); }
};

/// Faults of a program, as the reader of the error needs them.
[[noreturn]] void program_fault(const ReplayOptions& options, const std::string& message);
/// "stage 3 (pipeline 1, stage 0): send_gradient of micro-batch 2 [instruction 17]".
std::string instruction_name(const Program& program, int stage, int instruction);

bool is_send(Op op);
bool is_receive(Op op);
/// gradient_norm and barrier: all stages take part.
bool is_global(Op op);

/// Checks the program and the durations, and builds the graph. Unmatched ends are not refused here:
/// they never start, and the replay then reports who waits for whom.
Graph build_graph(const Program& program, const Durations& durations, const ReplayOptions& options);

/// Throws for a replay that ended with activities that never started: at the head of every stream
/// that is stuck, what it is and what it waits for.
[[noreturn]] void report_stuck(const Program& program, const Graph& graph,
                               const std::vector<char>& ended, const ReplayOptions& options);

/// Fills in what each stage did from the spans.
void account(const Program& program, const ReplayOptions& options, Replay& replay);

}  // namespace hydraulis::detail
