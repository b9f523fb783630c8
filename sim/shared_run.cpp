#include "sim/shared_run.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "sim/engine.h"

namespace hydraulis::detail {
namespace {

class SharedRun {
 public:
  SharedRun(const Graph& graph, const Sharing& sharing)
      : graph_(graph),
        sharing_(sharing),
        share_(sharing.capacities, sharing.kinds()),
        waits_(graph.waits),
        next_part_(sharing.first_part.begin(), sharing.first_part.end() - 1),
        kinds_(sharing.kinds()),
        settle_(graph.activities() + sharing.kinds()) {
    for (std::uint32_t kind = 0; kind < sharing.kinds(); ++kind) {
      share_.limit(kind, sharing.limits[kind]);
    }
    course_.ran.resize(graph.activities());
    course_.ended.resize(graph.activities());
  }

  Course run() {
    for (std::uint32_t activity = 0; activity < graph_.activities(); ++activity) {
      if (waits_[activity] == 0) start(activity);
    }
    engine_.run([this](std::uint32_t payload) {
      if (payload == settle_) {
        settle();
      } else if (payload < graph_.activities()) {
        advance(payload);
      } else {
        end_due(payload - graph_.activities());
      }
    });
    course_.events = engine_.events();
    return std::move(course_);
  }

 private:
  /// When a running activity of a kind ends, on the kind's own clock, which runs at its rate.
  struct Member {
    double end;
    std::uint32_t activity;
    bool operator>(const Member& other) const {
      return end != other.end ? end > other.end : activity > other.activity;
    }
  };
  struct Kind {
    std::vector<Member> members;  ///< heap, the earliest end on top
    double clock = 0;             ///< at `since`
    double since = 0;
    double rate = 0;  ///< of the clock since then
    double due = -1;  ///< when the next member ends, as things stand
    bool dirty = false;
  };

  void start(std::uint32_t activity) {
    course_.ran[activity].start = engine_.now();
    next(activity);
  }

  /// A part that shares nothing has ended, or an activity without parts is over.
  void advance(std::uint32_t activity) {
    if (next_part_[activity] == sharing_.first_part[activity + 1]) {
      end(activity);
    } else {
      ++next_part_[activity];
      after_part(activity);
    }
  }

  void after_part(std::uint32_t activity) {
    if (next_part_[activity] == sharing_.first_part[activity + 1]) {
      end(activity);
    } else {
      next(activity);
    }
  }

  /// Begins the part at hand.
  void next(std::uint32_t activity) {
    if (next_part_[activity] == sharing_.first_part[activity + 1]) {
      engine_.schedule_at(engine_.now(), activity);
      return;
    }
    const Part& part = sharing_.parts[next_part_[activity]];
    if (part.kind == kAlone || part.seconds <= 0) {
      engine_.schedule_after(std::max(0.0, part.seconds), activity);
      return;
    }
    Kind& kind = kinds_[part.kind];
    wind(kind);
    if (kind.members.empty()) kind.clock = 0;  // so that a lone member's end is not rounded
    kind.members.push_back({kind.clock + part.seconds, activity});
    std::push_heap(kind.members.begin(), kind.members.end(), std::greater<>());
    share_.start(part.kind, sharing_.of(part.kind));
    mark(part.kind);
  }

  void end(std::uint32_t activity) {
    course_.ended[activity] = 1;
    course_.ran[activity].end = engine_.now();
    course_.end_seconds = engine_.now();
    for (std::uint32_t i = graph_.first_successor[activity];
         i < graph_.first_successor[activity + 1]; ++i) {
      const std::uint32_t next = graph_.successors[i];
      if (--waits_[next] == 0) start(next);
    }
  }

  void wind(Kind& kind) {
    kind.clock += (engine_.now() - kind.since) * kind.rate;
    kind.since = engine_.now();
  }

  /// Ends what is due of a kind. An end that was put off or brought forward leaves its old event
  /// behind.
  void end_due(std::uint32_t number) {
    Kind& kind = kinds_[number];
    if (kind.members.empty() || kind.due != engine_.now()) return;
    kind.due = -1;
    kind.clock = kind.members.front().end;
    kind.since = engine_.now();
    const double due = kind.clock;
    ended_.clear();
    while (!kind.members.empty() && kind.members.front().end <= due) {
      std::pop_heap(kind.members.begin(), kind.members.end(), std::greater<>());
      ended_.push_back(kind.members.back().activity);
      kind.members.pop_back();
      share_.end(number);
    }
    mark(number);
    for (const std::uint32_t activity : ended_) {
      ++next_part_[activity];
      after_part(activity);
    }
  }

  /// The kind's next end is to be looked at once everything of this time has happened.
  void mark(std::uint32_t number) {
    if (dirty_.empty()) engine_.schedule_at(engine_.now(), settle_);
    if (std::exchange(kinds_[number].dirty, true)) return;
    dirty_.push_back(number);
  }

  void settle() {
    share_.settle([this](std::uint32_t number) {
      if (!std::exchange(kinds_[number].dirty, true)) dirty_.push_back(number);
    });
    for (const std::uint32_t number : dirty_) {
      Kind& kind = kinds_[number];
      kind.dirty = false;
      wind(kind);
      kind.rate = share_.rate(number);
      if (kind.members.empty()) continue;
      const double left = std::max(0.0, kind.members.front().end - kind.clock);
      const double due = engine_.now() + left / kind.rate;
      if (due == kind.due) continue;  // its event is there
      kind.due = due;
      engine_.schedule_at(due, graph_.activities() + number);
    }
    dirty_.clear();
  }

  const Graph& graph_;
  const Sharing& sharing_;
  Engine engine_;
  FairShare share_;
  std::vector<std::uint32_t> waits_;
  std::vector<std::uint32_t> next_part_;  ///< by activity
  std::vector<Kind> kinds_;
  std::vector<std::uint32_t> dirty_;  ///< kinds
  std::vector<std::uint32_t> ended_;  ///< activities, while ending
  std::uint32_t settle_;              ///< payload of the event that settles
  Course course_;
};

}  // namespace

Course run_alone(const Graph& graph) {
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

Course run_shared(const Graph& graph, const Sharing& sharing) {
  return SharedRun(graph, sharing).run();
}

}  // namespace hydraulis::detail
