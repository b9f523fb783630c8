#include "planner/program/timeline.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "planner/program/timeline_check.h"

namespace hydraulis {

std::vector<TimelineTrack> timeline_tracks(const Program& program) {
  std::vector<TimelineTrack> tracks;
  tracks.reserve(program.stages.size());
  for (const Stage& stage : program.stages) {
    const Scheme& scheme = program.pipelines.at(stage.pipeline).scheme;
    tracks.push_back({stage.pipeline, stage.index, to_string(scheme), stage.devices});
  }
  return tracks;
}

int add_tracks(std::vector<TimelineTrack>& tracks, const Program& program) {
  const std::vector<TimelineTrack> wanted = timeline_tracks(program);
  auto found = std::search(tracks.begin(), tracks.end(), wanted.begin(), wanted.end());
  if (found == tracks.end() && !wanted.empty()) {
    found = tracks.insert(tracks.end(), wanted.begin(), wanted.end());
  }
  return static_cast<int>(found - tracks.begin());
}

namespace detail {
namespace {

void check_event(const Timeline& timeline, std::size_t index) {
  const TimelineEvent& event = timeline.events[index];
  if (event.stage < 0 || static_cast<std::size_t>(event.stage) >= timeline.tracks.size()) {
    throw InputError("timeline: event {} is of stage {}, expected 0 to {}", index, event.stage,
                     static_cast<std::int64_t>(timeline.tracks.size()) - 1);
  }
  if (static_cast<int>(event.stream) >= kStreams) {
    throw InputError("timeline: event {} is of stream {}, expected 0 to {}", index,
                     static_cast<int>(event.stream), kStreams - 1);
  }
  const bool in_range = std::isfinite(event.start_seconds) && std::isfinite(event.end_seconds) &&
                        event.start_seconds >= 0 && event.end_seconds <= kLongestSeconds;
  if (!in_range || event.end_seconds < event.start_seconds) {
    throw InputError(
        "timeline: event {} ({} on stage {}) lasts from {} to {} seconds, expected finite times "
        "from 0 to {:.0e} with the end not before the start",
        index, to_string(event.op), event.stage, event.start_seconds, event.end_seconds,
        kLongestSeconds);
  }
}

}  // namespace

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

std::vector<std::uint32_t> check_and_order(const Timeline& timeline) {
  if (timeline.events.size() > UINT32_MAX) {
    throw InputError("timeline: {} events, expected at most {}", timeline.events.size(),
                     UINT32_MAX);
  }
  bool sorted = true;
  std::vector<double> last_end(timeline.tracks.size() * kStreams, 0);
  for (std::size_t i = 0; i < timeline.events.size(); ++i) {
    check_event(timeline, i);
    const TimelineEvent& event = timeline.events[i];
    double& last = last_end[event.stage * kStreams + static_cast<int>(event.stream)];
    sorted = sorted && event.start_seconds >= last;
    last = event.end_seconds;
  }
  if (sorted) return {};

  std::vector<std::uint32_t> order(timeline.events.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto key = [&](std::uint32_t index) {
    const TimelineEvent& event = timeline.events[index];
    return std::tuple(event.stage, event.stream, event.start_seconds, event.end_seconds, index);
  };
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t left, std::uint32_t right) { return key(left) < key(right); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const TimelineEvent& before = timeline.events[order[i - 1]];
    const TimelineEvent& after = timeline.events[order[i]];
    const bool same_track = before.stage == after.stage && before.stream == after.stream;
    if (same_track && nanoseconds(after.start_seconds) < nanoseconds(before.end_seconds)) {
      throw InputError(
          "timeline: events {} and {} overlap on stage {}, stream {} ({} s to {} s and {} s to {} "
          "s); a stream does one thing at a time",
          order[i - 1], order[i], after.stage, to_string(after.stream), before.start_seconds,
          before.end_seconds, after.start_seconds, after.end_seconds);
    }
  }
  return order;
}

}  // namespace detail
}  // namespace hydraulis
