// Writes a results file.
#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/hdf5.h"
#include "sim/results.h"
#include "sim/results_schema.h"

namespace hydraulis {
namespace {

using detail::kMemoryParts;
using detail::kMilliseconds;
using detail::kOps;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

template <typename T>
struct Row {
  std::size_t run;
  const T* value;
};

template <typename T, typename Get>
std::vector<Row<T>> rows_of(const Results& results, Get get) {
  std::vector<Row<T>> rows;
  for (std::size_t r = 0; r < results.runs.size(); ++r) {
    const std::vector<T>* values = get(results.runs[r]);
    if (values == nullptr) continue;
    for (const T& value : *values) rows.push_back({r, &value});
  }
  return rows;
}

/// Writes the columns of one group, all of the same rows.
template <typename R>
class Writer {
 public:
  Writer(Hdf5File& file, std::string group, const std::vector<R>& rows)
      : file_(file), group_(std::move(group)), rows_(rows) {
    if (!file_.exists(group_)) file_.create_group(group_);
  }
  template <typename Get>
  void numbers(const std::string& name, const char* units, Get get) {
    write<double>(name, units, get);
  }
  template <typename Get>
  void integers(const std::string& name, const char* units, Get get) {
    write<std::int64_t>(name, units, get);
  }
  template <typename Get>
  void texts(const std::string& name, Get get) {
    std::vector<std::string> values;
    for (const R& row : rows_) values.emplace_back(get(row));
    file_.write_texts(group_ + "/" + name, values);
  }

 private:
  template <typename T, typename Get>
  void write(const std::string& name, const char* units, Get get) {
    std::vector<T> values;
    values.reserve(rows_.size());
    for (const R& row : rows_) values.push_back(static_cast<T>(get(row)));
    const std::string path = group_ + "/" + name;
    file_.write<T>(path, std::span<const T>(values));
    file_.set_attribute(path, "units", std::string(units));
  }
  Hdf5File& file_;
  std::string group_;
  const std::vector<R>& rows_;
};

void write_runs(Hdf5File& file, const Results& results) {
  const std::vector<ResultRun>& runs = results.runs;
  Writer table(file, "/runs", runs);
  using Run = ResultRun;
  table.texts("settings", [](const Run& r) { return r.settings.dump(); });
  table.texts("outcome", [](const Run& r) { return to_string(r.outcome); });
  table.texts("message", [](const Run& r) { return r.message; });
  table.texts("policy", [](const Run& r) { return r.policy; });
  table.texts("remark", [](const Run& r) { return r.remark; });
  table.texts("model", [](const Run& r) { return r.model; });
  table.texts("profile", [](const Run& r) { return r.profile; });
  table.integers("analytic", "0 or 1", [](const Run& r) { return r.analytic ? 1 : 0; });
  table.texts("provenance", [](const Run& r) { return r.provenance.dump(); });
  table.integers("devices", "devices", [](const Run& r) { return r.devices; });
  const auto summary = [&](const char* name, const char* units, auto get) {
    table.numbers(name, units, [&](const Run& r) {
      return r.outcome == RunOutcome::done ? static_cast<double>(get(r)) : kNone;
    });
  };
  summary("mean_ms", "milliseconds",
          [](const Run& r) { return kMilliseconds * r.summary.mean_seconds; });
  summary("p95_ms", "milliseconds",
          [](const Run& r) { return kMilliseconds * r.summary.p95_seconds; });
  summary("tokens_per_second", "tokens per second",
          [](const Run& r) { return r.summary.tokens_per_second; });
  summary("mfu", "share of the peak rate", [](const Run& r) { return r.summary.mfu; });
  summary("bubble_share", "share of device time",
          [](const Run& r) { return r.summary.bubble_share; });
  summary("exposed_communication_ms", "milliseconds",
          [](const Run& r) { return kMilliseconds * r.summary.exposed_communication_seconds; });
  summary("memory_bytes", "bytes", [](const Run& r) { return r.summary.memory_bytes; });
  summary("events", "events", [](const Run& r) { return r.summary.events; });
  summary("device_hours_per_billion_tokens", "device-hours",
          [](const Run& r) { return r.device_hours_per_billion_tokens(); });
}

void write_grid(Hdf5File& file, const Results& results) {
  file.create_group("/grid");
  Json names = Json::array();
  for (std::size_t a = 0; a < results.axes.size(); ++a) {
    names.push_back(results.axes[a]);
    const auto value = [a](const ResultRun& r) { return r.axis_values[a]; };
    Writer table(file, "/grid", results.runs);
    const bool numeric =
        std::ranges::all_of(results.runs, [&](const ResultRun& r) { return value(r).is_number(); });
    if (numeric) {
      table.numbers(results.axes[a], "as in the sweep file",
                    [&](const ResultRun& r) { return value(r).template get<double>(); });
    } else {
      table.texts(results.axes[a], [&](const ResultRun& r) {
        const Json json = value(r);
        return json.is_string() ? json.get<std::string>() : json.dump();
      });
    }
  }
  file.set_attribute("/grid", "axes", names.dump());
}

void write_iterations(Hdf5File& file, const Results& results) {
  using R = Row<IterationResult>;
  const auto rows =
      rows_of<IterationResult>(results, [](const ResultRun& r) { return &r.iterations; });
  Writer table(file, "/iterations", rows);
  table.integers("run", "row of /runs", [](const R& r) { return r.run; });
  table.numbers("time_ms", "milliseconds",
                [](const R& r) { return kMilliseconds * r.value->time_seconds; });
  table.integers("strategy", "number in /strategies", [](const R& r) { return r.value->strategy; });
  table.integers("tokens", "tokens", [](const R& r) { return r.value->tokens; });
  table.numbers("bubble_share", "share of device time",
                [](const R& r) { return r.value->bubble_share; });
  table.numbers("exposed_communication_ms", "milliseconds",
                [](const R& r) { return kMilliseconds * r.value->exposed_communication_seconds; });
  table.numbers("mfu", "share of the peak rate", [](const R& r) { return r.value->mfu; });
  table.numbers("memory_bytes", "bytes", [](const R& r) { return r.value->memory_bytes; });
}

void write_strategies(Hdf5File& file, const Results& results) {
  using R = Row<std::string>;
  const auto rows = rows_of<std::string>(results, [](const ResultRun& r) { return &r.strategies; });
  Writer table(file, "/strategies", rows);
  table.integers("run", "row of /runs", [](const R& r) { return r.run; });
  table.texts("text", [](const R& r) { return *r.value; });
}

void write_stages(Hdf5File& file, const Results& results) {
  using R = Row<StageResult>;
  const auto rows = rows_of<StageResult>(
      results, [](const ResultRun& r) { return r.kept ? &r.kept->stages : nullptr; });
  Writer table(file, "/stages", rows);
  table.integers("run", "row of /runs", [](const R& r) { return r.run; });
  table.integers("pipeline", "pipeline", [](const R& r) { return r.value->pipeline; });
  table.integers("stage_in_pipeline", "stage", [](const R& r) { return r.value->index; });
  table.texts("scheme", [](const R& r) { return r.value->scheme; });
  const auto seconds = [&](const char* name, double StageReplay::*field) {
    table.numbers(name, "milliseconds",
                  [field](const R& r) { return kMilliseconds * r.value->times.*field; });
  };
  seconds("compute_ms", &StageReplay::compute_seconds);
  seconds("communication_ms", &StageReplay::communication_seconds);
  seconds("exposed_communication_ms", &StageReplay::exposed_communication_seconds);
  seconds("idle_ms", &StageReplay::idle_seconds);
  table.integers("live_micro_batches", "micro-batches",
                 [](const R& r) { return r.value->times.peak_live_micro_batches; });
  table.integers("live_tokens", "tokens",
                 [](const R& r) { return r.value->times.peak_live_tokens; });
  for (const auto& [name, field] : kMemoryParts) {
    table.numbers(name, "bytes", [f = field](const R& r) { return r.value->memory.*f; });
  }
}

void write_kept(Hdf5File& file, const Results& results) {
  std::vector<std::size_t> kept;
  for (std::size_t r = 0; r < results.runs.size(); ++r) {
    if (results.runs[r].kept) kept.push_back(r);
  }
  Writer table(file, "/kept", kept);
  table.integers("run", "row of /runs", [](std::size_t r) { return r; });
  table.integers("iteration", "iteration",
                 [&](std::size_t r) { return results.runs[r].kept->iteration; });
  table.numbers("memory_limit_bytes", "bytes",
                [&](std::size_t r) { return results.runs[r].kept->memory_limit_bytes; });
  std::vector<std::string> names;
  for (int i = 0; i < kOps; ++i) names.emplace_back(to_string(static_cast<Op>(i)));
  file.write_texts("/op_names", names);
  names.clear();
  for (int i = 0; i < kStreams; ++i) names.emplace_back(to_string(static_cast<StreamKind>(i)));
  file.write_texts("/stream_names", names);

  using R = Row<TimelineEvent>;
  const auto rows = rows_of<TimelineEvent>(
      results, [](const ResultRun& r) { return r.kept ? &r.kept->timeline.events : nullptr; });
  Writer events(file, "/events", rows);
  events.integers("run", "row of /runs", [](const R& r) { return r.run; });
  events.integers("stage", "its run's stage, from 0", [](const R& r) { return r.value->stage; });
  events.integers("instruction", "in its stage", [](const R& r) { return r.value->instruction; });
  events.integers("op", "row of /op_names",
                  [](const R& r) { return static_cast<int>(r.value->op); });
  events.integers("stream", "row of /stream_names",
                  [](const R& r) { return static_cast<int>(r.value->stream); });
  events.integers("micro_batch", "in its pipeline, -1 for none",
                  [](const R& r) { return r.value->micro_batch; });
  events.numbers("start_ms", "milliseconds",
                 [](const R& r) { return kMilliseconds * r.value->start_seconds; });
  events.numbers("end_ms", "milliseconds",
                 [](const R& r) { return kMilliseconds * r.value->end_seconds; });
  events.integers("bytes", "bytes", [](const R& r) { return r.value->bytes; });
}

}  // namespace

void write_results(const Results& results, const std::filesystem::path& path) {
  AtomicFile target(path);
  Hdf5File file = Hdf5File::create(target.temporary(), path.string());
  file.set_attribute("/", "format", std::string(detail::kResultsFormat));
  file.set_attribute("/", "version", detail::kResultsVersion);
  file.set_attribute("/", "name", results.name);
  write_runs(file, results);
  write_grid(file, results);
  write_iterations(file, results);
  write_strategies(file, results);
  write_stages(file, results);
  write_kept(file, results);
  file.close();
  target.commit();
}
}  // namespace hydraulis
