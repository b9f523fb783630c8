#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "planner/program/program.h"

namespace hydraulis {

/// One executed (simulated or measured) instruction.
struct TimelineEvent {
  int iteration = 0;
  int stage = 0;  ///< a row of the timeline's tracks
  int instruction =
      0;  ///< index in the stage's stream: the id that predictions and measurements share
  Op op = Op::forward;
  StreamKind stream = StreamKind::compute;
  int micro_batch = -1;
  double start_seconds = 0;
  double end_seconds = 0;
  std::int64_t bytes = 0;
};

/// Names for the tracks of a timeline.
struct TimelineTrack {
  int pipeline = 0;
  int stage_in_pipeline = 0;
  std::string scheme;  ///< "(1,16,1)"
  std::vector<int> devices;
  bool operator==(const TimelineTrack&) const = default;
};

/// What an executor did, in the same form for simulator and runtime.
struct Timeline {
  std::string origin;  ///< "simulated" or "measured"
  std::string model_name;
  /// Stages by their global index, those of each strategy after those of the one before it: an
  /// iteration's stages are rows that follow one another.
  std::vector<TimelineTrack> tracks;
  std::vector<TimelineEvent> events;
};

std::vector<TimelineTrack> timeline_tracks(const Program& program);

/// Adds the stages of a program to the tracks unless they stand there; returns the row of its
/// first.
int add_tracks(std::vector<TimelineTrack>& tracks, const Program& program);

/// Writes Chrome trace JSON (microseconds; one process a stage, one thread a stream; opens in
/// Perfetto), atomically and streaming. Returns the bytes written.
std::uint64_t write_chrome_trace(const Timeline& timeline, const std::filesystem::path& path);

/// The same timeline as HDF5 columns; the schema is in the .cpp file's head and in docs/formats.md.
void write_timeline_hdf5(const Timeline& timeline, const std::filesystem::path& path);
Timeline read_timeline_hdf5(const std::filesystem::path& path);

}  // namespace hydraulis
