#include "sim/replay.h"

#include <algorithm>
#include <utility>

#include "sim/engine.h"
#include "sim/fair_share.h"
#include "sim/graph.h"
#include "sim/sharing.h"

namespace hydraulis {

namespace {

/// What a program's activities did.
struct Course {
  std::vector<Span> ran;    ///< by activity
  std::vector<char> ended;  ///< by activity
  double end_seconds = 0;
  std::uint64_t events = 0;
};

/// Every activity takes the time it has.
Course run_alone(const detail::Graph& graph) {
  std::vector<std::uint32_t> waits = graph.waits;
  Course course;
  course.ran.resize(graph.activities());
  // The only event there is: the activity with this number ends.
  Engine engine;
  const auto start = [&](std::uint32_t activity) {
    const double now = engine.now();
    const double end = now + graph.seconds[activity];
    course.ran[activity] = {now, end};
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
  course.end_seconds = engine.now();
  course.events = engine.events();
  for (const std::uint32_t left : waits) course.ended.push_back(left == 0 ? 1 : 0);
  return course;
}

/// Activities slow one another down where they share resources.
class SharedRun {
 public:
  SharedRun(const detail::Graph& graph, const detail::Sharing& sharing)
      : graph_(graph),
        sharing_(sharing),
        share_(sharing.capacities, graph.activities()),
        waits_(graph.waits),
        work_(graph.activities()) {
    course_.ran.resize(graph.activities());
    course_.ended.resize(graph.activities());
  }

  Course run() {
    for (std::uint32_t activity = 0; activity < graph_.activities(); ++activity) {
      if (waits_[activity] == 0) start(activity);
    }
    settle();
    engine_.run([this](std::uint32_t activity) {
      // An end that was put off or brought forward leaves its old event behind.
      if (course_.ended[activity] != 0 || course_.ran[activity].end != engine_.now()) return;
      end(activity);
      settle();
    });
    course_.events = engine_.events();
    return std::move(course_);
  }

 private:
  struct Work {
    double left = 0;   ///< seconds at full speed
    double since = 0;  ///< when that was so
    double rate = 0;   ///< since then
  };

  void start(std::uint32_t activity) {
    work_[activity] = {graph_.seconds[activity], engine_.now(), 0};
    course_.ran[activity] = {engine_.now(), -1};
    share_.start(activity, sharing_.of(activity));
  }

  void end(std::uint32_t activity) {
    course_.ended[activity] = 1;
    course_.end_seconds = engine_.now();
    share_.end(activity);
    for (std::uint32_t i = graph_.first_successor[activity];
         i < graph_.first_successor[activity + 1]; ++i) {
      const std::uint32_t next = graph_.successors[i];
      if (--waits_[next] == 0) start(next);
    }
  }

  void settle() {
    share_.settle([this](std::uint32_t activity) {
      Work& work = work_[activity];
      const double now = engine_.now();
      work.left = std::max(0.0, work.left - (now - work.since) * work.rate);
      work.since = now;
      work.rate = share_.rate(activity);
      const double end = now + work.left / work.rate;
      if (end == course_.ran[activity].end) return;
      course_.ran[activity].end = end;
      engine_.schedule_at(end, activity);
    });
  }

  const detail::Graph& graph_;
  const detail::Sharing& sharing_;
  Engine engine_;
  FairShare share_;
  std::vector<std::uint32_t> waits_;
  std::vector<Work> work_;
  Course course_;
};

}  // namespace

Replay replay(const Program& program, const Durations& durations, const ReplayOptions& options) {
  const detail::Graph graph = detail::build_graph(program, durations, options);
  Course course;
  if (options.cores_per_node > 0) {
    const detail::Sharing sharing = detail::share_cores(program, graph, options.cores_per_node);
    course = SharedRun(graph, sharing).run();
  } else {
    course = run_alone(graph);
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
