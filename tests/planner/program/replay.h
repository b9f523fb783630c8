#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <stdexcept>
#include <vector>

#include "planner/program/program.h"

namespace hydraulis::testing {

/// When every instruction ends if forward and backward take `seconds(stage, instruction)`, all else
/// takes no time and messages meet: the plainest possible executor, for the tests alone.
inline std::vector<std::vector<double>> replay(
    const Program& program, const std::function<double(int, const Instruction&)>& seconds) {
  const int stages = static_cast<int>(program.stages.size());
  std::vector<std::vector<double>> end(stages);
  for (int s = 0; s < stages; ++s) end[s].assign(program.stages[s].instructions.size(), -1);
  const auto meets = [](Op out, Op in) {
    return (out == Op::send_activation && in == Op::receive_activation) ||
           (out == Op::send_gradient && in == Op::receive_gradient);
  };
  bool moved = true;
  while (moved) {
    moved = false;
    for (int s = 0; s < stages; ++s) {
      std::array<double, kStreams> last{};
      const auto& list = program.stages[s].instructions;
      for (std::size_t i = 0; i < list.size(); ++i) {
        double& before = last[static_cast<int>(list[i].stream)];
        if (end[s][i] >= 0) {
          before = end[s][i];
          continue;
        }
        double start = before;
        for (const int d : list[i].depends_on) {
          start = end[s][d] < 0 || start < 0 ? -1 : std::max(start, end[s][d]);
        }
        const bool receives =
            list[i].op == Op::receive_activation || list[i].op == Op::receive_gradient;
        if (receives && start >= 0) {
          const auto& others = program.stages[list[i].peer].instructions;
          double sent = -1;
          for (std::size_t j = 0; j < others.size(); ++j) {
            if (meets(others[j].op, list[i].op) && others[j].micro_batch == list[i].micro_batch) {
              sent = end[list[i].peer][j];
            }
          }
          start = sent < 0 ? -1 : std::max(start, sent);
        }
        if (start >= 0) {
          const bool works = list[i].op == Op::forward || list[i].op == Op::backward;
          end[s][i] = start + (works ? seconds(s, list[i]) : 0);
          moved = true;
        }
        before = end[s][i];
      }
    }
  }
  for (const auto& stage : end) {
    for (const double e : stage) {
      if (e < 0) throw std::logic_error("the program does not end");
    }
  }
  return end;
}

inline double makespan(const Program& program,
                       const std::function<double(int, const Instruction&)>& seconds) {
  double latest = 0;
  for (const auto& stage : replay(program, seconds)) {
    for (const double end : stage) latest = std::max(latest, end);
  }
  return latest;
}

}  // namespace hydraulis::testing
