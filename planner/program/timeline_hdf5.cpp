// Schema of a timeline file (docs/formats.md, "Timeline"), version 1. Attributes of "/": format
// "hydraulis timeline", version, origin, model. /op_names and /stream_names say what the numbers in
// /events/op and /events/stream mean. /events: one column a field, one row an executed instruction.
// /tracks: one row a global stage; its devices are the next device_count rows of /track_devices.

#include <algorithm>
#include <map>
#include <span>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/hdf5.h"
#include "planner/program/timeline.h"
#include "planner/program/timeline_check.h"

namespace hydraulis {
namespace {

constexpr const char* kFormat = "hydraulis timeline";
constexpr std::int64_t kVersion = 1;
constexpr std::size_t kBlock = 1u << 16;  // events buffered at a time
/// Deflate shrinks a column of 4-byte numbers at most about 1030 times.
constexpr std::uint64_t kMostRowsPerByte = 260;
constexpr int kOps = static_cast<int>(Op::barrier) + 1;

template <typename Enum>
std::vector<std::string> names(int count) {
  std::vector<std::string> result;
  for (int i = 0; i < count; ++i) result.emplace_back(to_string(static_cast<Enum>(i)));
  return result;
}

/// Appends one field of all events, block by block.
template <typename T, typename Get>
void write_column(Hdf5File& file, const std::string& name, const Timeline& timeline, Get get) {
  file.create_dataset<T>(name);
  std::vector<T> block;
  for (std::size_t begin = 0; begin < timeline.events.size(); begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, timeline.events.size());
    block.clear();
    for (std::size_t i = begin; i < end; ++i) {
      block.push_back(static_cast<T>(get(timeline.events[i])));
    }
    file.append<T>(name, std::span<const T>(block));
  }
}

/// Reads one field of all events, block by block.
template <typename T, typename Set>
void read_column(const Hdf5File& file, const std::string& name, const std::string& where,
                 Timeline& timeline, Set set) {
  if (file.size(name) != timeline.events.size()) {
    throw InputError("{}: {} has {} rows, expected {} as /events/iteration has", where, name,
                     file.size(name), timeline.events.size());
  }
  for (std::size_t begin = 0; begin < timeline.events.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, timeline.events.size() - begin);
    const std::vector<T> block = file.read<T>(name, begin, count);
    for (std::size_t i = 0; i < count; ++i) set(timeline.events[begin + i], block[i]);
  }
}

template <typename Enum>
std::vector<Enum> meanings(const std::vector<std::string>& stored, int count,
                           const std::string& where, const char* dataset) {
  const std::vector<std::string> known = names<Enum>(count);
  std::vector<Enum> result;
  for (const std::string& name : stored) {
    const auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end())
      throw InputError("{}: {} has the unknown name '{}'", where, dataset, name);
    result.push_back(static_cast<Enum>(found - known.begin()));
  }
  return result;
}

template <typename Enum>
Enum meaning(const std::vector<Enum>& table, std::uint32_t value, const std::string& where,
             const char* column) {
  if (value >= table.size()) {
    throw InputError("{}: {} has the value {}, expected less than {}", where, column, value,
                     table.size());
  }
  return table[value];
}

int small(std::int64_t value, const std::string& where, const char* column) {
  if (value < -1 || value > INT32_MAX) {
    throw InputError("{}: {} has the value {}, expected -1 to {}", where, column, value, INT32_MAX);
  }
  return static_cast<int>(value);
}

void read_tracks(const Hdf5File& file, const std::string& where, Timeline& timeline) {
  const auto pipelines = file.read<std::uint32_t>("/tracks/pipeline");
  const auto stages = file.read<std::uint32_t>("/tracks/stage_in_pipeline");
  const auto counts = file.read<std::uint32_t>("/tracks/device_count");
  const auto schemes = file.read_texts("/tracks/scheme");
  const auto devices = file.read<std::uint32_t>("/track_devices");
  if (stages.size() != pipelines.size() || counts.size() != pipelines.size() ||
      schemes.size() != pipelines.size()) {
    throw InputError("{}: the columns of /tracks differ in length", where);
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < pipelines.size(); ++i) {
    if (counts[i] > devices.size() - next) {
      throw InputError("{}: /track_devices has {} rows, fewer than /tracks/device_count asks for",
                       where, devices.size());
    }
    TimelineTrack track;
    track.pipeline = small(pipelines[i], where, "/tracks/pipeline");
    track.stage_in_pipeline = small(stages[i], where, "/tracks/stage_in_pipeline");
    track.scheme = schemes[i];
    for (std::uint32_t d = 0; d < counts[i]; ++d) {
      track.devices.push_back(small(devices[next++], where, "/track_devices"));
    }
    timeline.tracks.push_back(std::move(track));
  }
}

}  // namespace

void write_timeline_hdf5(const Timeline& timeline, const std::filesystem::path& path) {
  detail::check_and_order(timeline);
  AtomicFile target(path);
  Hdf5File file = Hdf5File::create(target.temporary(), path.string());
  file.set_attribute("/", "format", kFormat);
  file.set_attribute("/", "version", kVersion);
  file.set_attribute("/", "origin", timeline.origin);
  file.set_attribute("/", "model", timeline.model_name);
  file.write_texts("/op_names", names<Op>(kOps));
  file.write_texts("/stream_names", names<StreamKind>(kStreams));

  using Event = TimelineEvent;
  file.create_group("/events");
  write_column<std::uint32_t>(file, "/events/iteration", timeline,
                              [](const Event& e) { return e.iteration; });
  write_column<std::uint32_t>(file, "/events/stage", timeline,
                              [](const Event& e) { return e.stage; });
  write_column<std::uint32_t>(file, "/events/instruction", timeline,
                              [](const Event& e) { return e.instruction; });
  write_column<std::uint32_t>(file, "/events/op", timeline, [](const Event& e) { return e.op; });
  write_column<std::uint32_t>(file, "/events/stream", timeline,
                              [](const Event& e) { return e.stream; });
  write_column<std::int64_t>(file, "/events/micro_batch", timeline,
                             [](const Event& e) { return e.micro_batch; });
  write_column<double>(file, "/events/start_seconds", timeline,
                       [](const Event& e) { return e.start_seconds; });
  write_column<double>(file, "/events/end_seconds", timeline,
                       [](const Event& e) { return e.end_seconds; });
  write_column<std::int64_t>(file, "/events/bytes", timeline,
                             [](const Event& e) { return e.bytes; });

  std::vector<std::uint32_t> pipelines, stages, counts, devices;
  std::vector<std::string> schemes;
  for (const TimelineTrack& track : timeline.tracks) {
    pipelines.push_back(static_cast<std::uint32_t>(track.pipeline));
    stages.push_back(static_cast<std::uint32_t>(track.stage_in_pipeline));
    counts.push_back(static_cast<std::uint32_t>(track.devices.size()));
    schemes.push_back(track.scheme);
    devices.insert(devices.end(), track.devices.begin(), track.devices.end());
  }
  file.create_group("/tracks");
  file.write<std::uint32_t>("/tracks/pipeline", pipelines);
  file.write<std::uint32_t>("/tracks/stage_in_pipeline", stages);
  file.write<std::uint32_t>("/tracks/device_count", counts);
  file.write_texts("/tracks/scheme", schemes);
  file.write<std::uint32_t>("/track_devices", devices);
  file.close();
  target.commit();
}

Timeline read_timeline_hdf5(const std::filesystem::path& path) {
  const Hdf5File file = Hdf5File::open(path);
  const std::string where = path.string();
  if (!file.has_attribute("/", "format") || file.text_attribute("/", "format") != kFormat) {
    throw InputError("{}: not a timeline (attribute 'format' is not '{}')", where, kFormat);
  }
  if (const std::int64_t version = file.integer_attribute("/", "version"); version != kVersion) {
    throw InputError("{}: timeline version {}, expected {}", where, version, kVersion);
  }
  Timeline timeline;
  timeline.origin = file.text_attribute("/", "origin");
  timeline.model_name = file.text_attribute("/", "model");
  read_tracks(file, where, timeline);

  const auto ops = meanings<Op>(file.read_texts("/op_names"), kOps, where, "/op_names");
  const auto streams =
      meanings<StreamKind>(file.read_texts("/stream_names"), kStreams, where, "/stream_names");
  using Event = TimelineEvent;
  const std::uint64_t rows = file.size("/events/iteration");
  if (rows / kMostRowsPerByte > std::filesystem::file_size(path)) {
    throw InputError("{}: claims {} events, more than a file of its size can hold", where, rows);
  }
  timeline.events.resize(rows);
  read_column<std::uint32_t>(file, "/events/iteration", where, timeline, [&](Event& e, auto v) {
    e.iteration = small(v, where, "/events/iteration");
  });
  read_column<std::uint32_t>(file, "/events/stage", where, timeline,
                             [&](Event& e, auto v) { e.stage = small(v, where, "/events/stage"); });
  read_column<std::uint32_t>(file, "/events/instruction", where, timeline, [&](Event& e, auto v) {
    e.instruction = small(v, where, "/events/instruction");
  });
  read_column<std::uint32_t>(file, "/events/op", where, timeline, [&](Event& e, auto v) {
    e.op = meaning(ops, v, where, "/events/op");
  });
  read_column<std::uint32_t>(file, "/events/stream", where, timeline, [&](Event& e, auto v) {
    e.stream = meaning(streams, v, where, "/events/stream");
  });
  read_column<std::int64_t>(file, "/events/micro_batch", where, timeline, [&](Event& e, auto v) {
    e.micro_batch = small(v, where, "/events/micro_batch");
  });
  read_column<double>(file, "/events/start_seconds", where, timeline,
                      [](Event& e, auto v) { e.start_seconds = v; });
  read_column<double>(file, "/events/end_seconds", where, timeline,
                      [](Event& e, auto v) { e.end_seconds = v; });
  read_column<std::int64_t>(file, "/events/bytes", where, timeline,
                            [](Event& e, auto v) { e.bytes = v; });
  try {
    detail::check_and_order(timeline);
  } catch (const InputError& error) {
    throw InputError("{}: {}", where, error.what());
  }
  return timeline;
}

}  // namespace hydraulis
