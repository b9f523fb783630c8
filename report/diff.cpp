#include "report/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <tuple>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr const char* kWaiting = "waiting";

/// The optimizer's part of an iteration, which not every timeline holds.
constexpr Op kOptimizerOps[] = {Op::gradient_norm, Op::optimizer_step, Op::barrier};

/// Which of them only one of the timelines has.
std::vector<Op> left_out(const Timeline& predicted, const Timeline& measured) {
  const auto holds = [](const Timeline& timeline, Op op) {
    return std::ranges::any_of(timeline.events,
                               [op](const TimelineEvent& event) { return event.op == op; });
  };
  std::vector<Op> ops;
  for (const Op op : kOptimizerOps) {
    if (holds(predicted, op) != holds(measured, op)) ops.push_back(op);
  }
  return ops;
}

/// Events by iteration, stage and instruction, but for those of the kinds `without`.
std::vector<const TimelineEvent*> sorted(const Timeline& timeline, const char* which,
                                         const std::vector<Op>& without) {
  std::vector<const TimelineEvent*> events;
  events.reserve(timeline.events.size());
  for (const TimelineEvent& event : timeline.events) {
    if (std::ranges::find(without, event.op) == without.end()) events.push_back(&event);
  }
  const auto key = [](const TimelineEvent* e) {
    return std::tuple(e->iteration, e->stage, e->instruction);
  };
  std::ranges::sort(events, {}, key);
  for (std::size_t i = 1; i < events.size(); ++i) {
    if (key(events[i]) == key(events[i - 1])) {
      throw InputError("{} timeline: iteration {}, stage {}, instruction {} stands there twice",
                       which, events[i]->iteration, events[i]->stage, events[i]->instruction);
    }
  }
  return events;
}

using EventSpan = std::span<const TimelineEvent* const>;

/// One iteration of a timeline.
struct Iteration {
  EventSpan events;     ///< by stage and instruction
  int first_track = 0;  ///< of its strategy's stages
};

/// The parts of sorted events that are of one iteration each.
std::map<int, Iteration> by_iteration(const std::vector<const TimelineEvent*>& events) {
  std::map<int, Iteration> result;
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= events.size(); ++i) {
    if (i < events.size() && events[i]->iteration == events[begin]->iteration) continue;
    result[events[begin]->iteration] = {EventSpan(events).subspan(begin, i - begin),
                                        events[begin]->stage};
    begin = i;
  }
  return result;
}

std::string text(const TimelineEvent& event) {
  std::string result = to_string(event.op);
  if (event.micro_batch >= 0) result += fmt::format(" of micro-batch {}", event.micro_batch);
  return result;
}

/// Throws for the first stage or instruction that only one of them has or that is another one.
void expect_same_program(const Timeline& predicted_timeline, const Iteration& predicted,
                         const Timeline& measured_timeline, const Iteration& measured) {
  const std::size_t count = std::max(predicted.events.size(), measured.events.size());
  for (std::size_t i = 0; i < count; ++i) {
    const TimelineEvent* p = i < predicted.events.size() ? predicted.events[i] : nullptr;
    const TimelineEvent* m = i < measured.events.size() ? measured.events[i] : nullptr;
    const auto place = [](const TimelineEvent* e, const Iteration& of) {
      return std::pair(e->stage - of.first_track, e->instruction);
    };
    if (p != nullptr && m != nullptr && place(p, predicted) == place(m, measured)) {
      const TimelineTrack& p_track = predicted_timeline.tracks.at(p->stage);
      const TimelineTrack& m_track = measured_timeline.tracks.at(m->stage);
      if (p_track.scheme != m_track.scheme || p_track.pipeline != m_track.pipeline) {
        throw InputError(
            "the timelines are of different programs: in iteration {} stage {} is of pipeline {} "
            "with scheme {} in the predicted one and of pipeline {} with scheme {} in the measured "
            "one",
            m->iteration, place(m, measured).first, p_track.pipeline, p_track.scheme,
            m_track.pipeline, m_track.scheme);
      }
      if (p->op == m->op && p->micro_batch == m->micro_batch && p->stream == m->stream) continue;
      throw InputError(
          "the timelines are of different programs: iteration {}, stage {}, instruction {} is {} "
          "in the predicted one and {} in the measured one",
          m->iteration, place(m, measured).first, m->instruction, text(*p), text(*m));
    }
    const bool only_predicted =
        m == nullptr || (p != nullptr && place(p, predicted) < place(m, measured));
    const TimelineEvent& only = only_predicted ? *p : *m;
    throw InputError(
        "the timelines are of different programs: iteration {}, stage {}, instruction {} ({}) is "
        "only in the {} one",
        only.iteration, place(&only, only_predicted ? predicted : measured).first, only.instruction,
        text(only), only_predicted ? "predicted" : "measured");
  }
}

double seconds(const TimelineEvent& event) { return event.end_seconds - event.start_seconds; }

double iteration_seconds(EventSpan events) {
  double begin = events.front()->start_seconds;
  double end = events.front()->end_seconds;
  for (const TimelineEvent* event : events) {
    begin = std::min(begin, event->start_seconds);
    end = std::max(end, event->end_seconds);
  }
  return end - begin;
}

void add(GroupDifference& group, const TimelineEvent& predicted, const TimelineEvent& measured) {
  ++group.count;
  group.predicted_seconds += seconds(predicted);
  group.measured_seconds += seconds(measured);
  group.absolute_seconds += std::abs(seconds(predicted) - seconds(measured));
}

template <typename Key>
std::vector<GroupDifference> in_order(std::map<Key, GroupDifference>& groups) {
  std::vector<GroupDifference> result;
  for (auto& [key, group] : groups) result.push_back(std::move(group));
  return result;
}

/// Sums over the iterations that both timelines have.
class Comparison {
 public:
  explicit Comparison(const Timeline& measured) : measured_(measured) {}

  void add_iteration(EventSpan predicted, EventSpan measured) {
    const IterationDifference iteration{measured.front()->iteration, iteration_seconds(predicted),
                                        iteration_seconds(measured)};
    if (iteration.measured_seconds <= 0) {
      throw InputError("measured timeline: iteration {} takes no time", iteration.iteration);
    }
    std::map<int, Cause> waiting;
    for (std::size_t i = 0; i < measured.size(); ++i) {
      const TimelineEvent& p = *predicted[i];
      const TimelineEvent& m = *measured[i];
      add(named(by_kind_, m.op, to_string(m.op)), p, m);
      waiting[m.stage];
      if (m.stream != StreamKind::compute) continue;
      add(named(by_stage_, m.stage, fmt::format("{}", m.stage)), p, m);
      if (m.micro_batch >= 0) {
        const int pipeline = measured_.tracks[static_cast<std::size_t>(m.stage)].pipeline;
        add(named(by_micro_batch_, std::pair(pipeline, m.micro_batch),
                  fmt::format("{}/{}", pipeline, m.micro_batch)),
            p, m);
      }
      Cause& busy = causes_[{m.stage, to_string(m.op)}];
      busy.predicted_seconds += seconds(p);
      busy.measured_seconds += seconds(m);
      waiting[m.stage].predicted_seconds -= seconds(p);
      waiting[m.stage].measured_seconds -= seconds(m);
    }
    for (const auto& [stage, minus_busy] : waiting) {
      Cause& idle = causes_[{stage, kWaiting}];
      idle.predicted_seconds += iteration.predicted_seconds + minus_busy.predicted_seconds;
      idle.measured_seconds += iteration.measured_seconds + minus_busy.measured_seconds;
    }
    iterations_.push_back(iteration);
  }

  TimelineDifference result() {
    TimelineDifference difference;
    const auto count = static_cast<double>(iterations_.size());
    for (const auto& [key, cause] : causes_) {
      difference.causes.push_back(
          {key.first, key.second, cause.predicted_seconds / count, cause.measured_seconds / count});
    }
    std::ranges::stable_sort(difference.causes, std::ranges::greater(),
                             [](const Cause& cause) { return std::abs(cause.difference()); });
    difference.iterations = std::move(iterations_);
    difference.by_kind = in_order(by_kind_);
    difference.by_stage = in_order(by_stage_);
    difference.by_micro_batch = in_order(by_micro_batch_);
    return difference;
  }

 private:
  template <typename Key>
  static GroupDifference& named(std::map<Key, GroupDifference>& groups, const Key& key,
                                const std::string& name) {
    GroupDifference& group = groups[key];
    if (group.name.empty()) group.name = name;
    return group;
  }

  const Timeline& measured_;
  std::vector<IterationDifference> iterations_;
  std::map<Op, GroupDifference> by_kind_;
  std::map<int, GroupDifference> by_stage_;
  std::map<std::pair<int, int>, GroupDifference> by_micro_batch_;
  std::map<std::pair<int, std::string>, Cause> causes_;
};

std::string range(const std::map<int, Iteration>& iterations) {
  if (iterations.empty()) return "none";
  return fmt::format("{} to {}", iterations.begin()->first, iterations.rbegin()->first);
}

std::vector<std::string> notes_on(const Timeline& predicted, const Timeline& measured) {
  std::vector<std::string> notes;
  if (predicted.model_name != measured.model_name) {
    notes.push_back(fmt::format("the predicted timeline is of model '{}', the measured one of '{}'",
                                predicted.model_name, measured.model_name));
  }
  if (predicted.origin != "simulated" || measured.origin != "measured") {
    notes.push_back(fmt::format("the predicted timeline is a {} one, the measured one a {} one",
                                predicted.origin, measured.origin));
  }
  notes.emplace_back("times of receives and reductions hold waiting for the other side");
  return notes;
}

}  // namespace

TimelineDifference diff(const Timeline& predicted, const Timeline& measured,
                        const DiffOptions& options) {
  const int offset = options.offset;
  const std::vector<Op> without = left_out(predicted, measured);
  const auto predicted_events = sorted(predicted, "predicted", without);
  const auto measured_events = sorted(measured, "measured", without);
  const auto predicted_iterations = by_iteration(predicted_events);
  const auto measured_iterations = by_iteration(measured_events);
  Comparison comparison(measured);
  int common = 0;
  for (const auto& [iteration, measured_part] : measured_iterations) {
    const auto found = predicted_iterations.find(iteration - offset);
    if (found == predicted_iterations.end()) continue;
    expect_same_program(predicted, found->second, measured, measured_part);
    if (++common > options.skip) {
      comparison.add_iteration(found->second.events, measured_part.events);
    }
  }
  if (common == 0) {
    throw InputError(
        "the timelines have no iteration in common: predicted are {}, measured {}{}; see --offset",
        range(predicted_iterations), range(measured_iterations),
        offset == 0 ? "" : fmt::format(" with an offset of {}", offset));
  }
  if (common <= options.skip) {
    throw InputError(
        "the timelines have {} iterations in common, nothing is left after skipping {}", common,
        options.skip);
  }
  TimelineDifference difference = comparison.result();
  difference.notes = notes_on(predicted, measured);
  for (const Op op : without) {
    difference.notes.push_back(fmt::format(
        "{} is in one of the timelines only and left out, of iteration times too", to_string(op)));
  }
  if (options.skip > 0) {
    difference.notes.push_back(fmt::format("the first {} iterations are left out", options.skip));
  }
  const std::size_t alone = predicted_iterations.size() + measured_iterations.size() -
                            2 * static_cast<std::size_t>(common);
  if (alone > 0) {
    difference.notes.push_back(
        fmt::format("{} iterations that only one timeline has are left out", alone));
  }
  return difference;
}

}  // namespace hydraulis
