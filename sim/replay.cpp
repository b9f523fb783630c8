#include "sim/replay.h"

#include <algorithm>

#include "sim/graph.h"
#include "sim/link_sharing.h"
#include "sim/shared_run.h"
#include "sim/sharing.h"

namespace hydraulis {

Replay replay(const Program& program, const Durations& durations, const ReplayOptions& options) {
  const detail::Graph graph = detail::build_graph(program, durations, options);
  detail::Course course;
  if (options.cores_per_node > 0) {
    course = detail::run_shared(graph, detail::share_cores(program, graph, options.cores_per_node));
  } else if (options.network != nullptr) {
    course = detail::run_shared(
        graph, detail::share_links(program, graph, *options.network, options.wire_bytes, options));
  } else {
    course = detail::run_alone(graph);
  }
  if (std::find(course.ended.begin(), course.ended.end(), 0) != course.ended.end()) {
    detail::report_stuck(program, graph, course.ended, options);
  }

  Replay result;
  result.makespan_seconds = course.end_seconds;
  result.events = course.events;
  result.spans.resize(program.stages.size());
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    result.spans[s].reserve(program.stages[s].instructions.size());
    for (std::uint32_t i = graph.first_instruction[s]; i < graph.first_instruction[s + 1]; ++i) {
      result.spans[s].push_back(course.ran[graph.activity[i]]);
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
