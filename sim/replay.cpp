#include "sim/replay.h"

#include <utility>

#include "sim/engine.h"
#include "sim/graph.h"

namespace hydraulis {

Replay replay(const Program& program, const Durations& durations, const ReplayOptions& options) {
  const detail::Graph graph = detail::build_graph(program, durations, options);
  std::vector<std::uint32_t> waits = graph.waits;
  std::vector<Span> ran(graph.activities());

  // The only event there is: the activity with this number ends.
  Engine engine;
  const auto start = [&](std::uint32_t activity) {
    const double now = engine.now();
    const double end = now + graph.seconds[activity];
    ran[activity] = {now, end};
    engine.schedule_at(end, activity);
  };
  for (std::uint32_t activity = 0; activity < graph.activities(); ++activity) {
    if (waits[activity] == 0) start(activity);
  }
  engine.run([&](std::uint32_t activity) {
    const std::uint32_t end = graph.first_successor[activity + 1];
    for (std::uint32_t i = graph.first_successor[activity]; i < end; ++i) {
      const std::uint32_t next = graph.successors[i];
      if (--waits[next] == 0) start(next);
    }
  });
  if (engine.events() < graph.activities()) {
    std::vector<char> ended(graph.activities());
    for (std::uint32_t a = 0; a < graph.activities(); ++a) ended[a] = waits[a] == 0 ? 1 : 0;
    detail::report_stuck(program, graph, ended, options);
  }

  Replay result;
  result.makespan_seconds = engine.now();
  result.events = engine.events();
  result.spans.resize(program.stages.size());
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    result.spans[s].reserve(program.stages[s].instructions.size());
    for (std::uint32_t i = graph.first_instruction[s]; i < graph.first_instruction[s + 1]; ++i) {
      result.spans[s].push_back(ran[graph.activity[i]]);
    }
  }
  detail::account(program, options, result);
  return result;
}

double bubble_share(const Program& program, const Replay& replay) {
  if (program.devices <= 0 || replay.makespan_seconds <= 0) return 0;
  double idle = 0;
  double unused = program.devices;
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const auto devices = static_cast<double>(program.stages[s].devices.size());
    idle += devices * replay.stages[s].idle_seconds;
    unused -= devices;
  }
  return (idle / replay.makespan_seconds + unused) / program.devices;
}

double exposed_communication_seconds(const Program& program, const Replay& replay) {
  if (program.devices <= 0) return 0;
  double exposed = 0;
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    exposed += static_cast<double>(program.stages[s].devices.size()) *
               replay.stages[s].exposed_communication_seconds;
  }
  return exposed / program.devices;
}

}  // namespace hydraulis
