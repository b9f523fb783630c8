// Schema of a results file (docs/formats.md, "Results"), version 1. /runs: one column a field, one
// row a run. /grid: one column an axis. /iterations, /strategies, /stages, /events: rows of all
// runs after one another, told apart by their column `run`.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/hdf5.h"
#include "sim/results.h"

namespace hydraulis {
namespace {

constexpr std::pair<const char*, double StageMemory::*> kMemoryParts[] = {
    {"optimizer_bytes", &StageMemory::optimizer}, {"parameter_bytes", &StageMemory::parameters},
    {"gradient_bytes", &StageMemory::gradients},  {"activation_bytes", &StageMemory::activations},
    {"logit_bytes", &StageMemory::logits},        {"buffer_bytes", &StageMemory::buffers},
    {"constant_bytes", &StageMemory::constant}};

constexpr const char* kFormat = "hydraulis results";
constexpr std::int64_t kVersion = 1;
constexpr double kMilliseconds = 1e3;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
/// Deflate shrinks a column of 8-byte numbers at most about 1030 times.
constexpr std::uint64_t kMostRowsPerByte = 130;
constexpr int kOps = static_cast<int>(Op::barrier) + 1;

/// A row of one run: which run, and what is in it.
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

/// Reads the columns of one group and checks that they are as long as its first.
class Reader {
 public:
  Reader(const Hdf5File& file, std::string where, std::string group, const std::string& first)
      : file_(file), where_(std::move(where)), group_(std::move(group)) {
    rows_ = file_.size(group_ + "/" + first);
    if (rows_ / kMostRowsPerByte > std::filesystem::file_size(where_)) {
      throw InputError("{}: {} claims {} rows, more than a file of its size can hold", where_,
                       group_, rows_);
    }
  }
  std::size_t rows() const { return static_cast<std::size_t>(rows_); }
  template <typename T, typename Set>
  void column(const std::string& name, Set set) const {
    each(file_.read<T>(checked(name)), set);
  }
  template <typename Set>
  void texts(const std::string& name, Set set) const {
    each(file_.read_texts(checked(name)), set);
  }
  /// Whole numbers in [low, high].
  template <typename Set>
  void integers(const std::string& name, std::int64_t low, std::int64_t high, Set set) const {
    column<std::int64_t>(name, [&](std::size_t i, std::int64_t value) {
      if (value < low || value > high) {
        throw InputError("{}: {}/{} has the value {}, expected {} to {}", where_, group_, name,
                         value, low, high);
      }
      set(i, value);
    });
  }

 private:
  std::string checked(const std::string& name) const {
    const std::string path = group_ + "/" + name;
    if (file_.size(path) != rows_) {
      throw InputError("{}: {} has {} rows, expected {}", where_, path, file_.size(path), rows_);
    }
    return path;
  }
  template <typename T, typename Set>
  static void each(std::vector<T> values, Set set) {
    for (std::size_t i = 0; i < values.size(); ++i) set(i, std::move(values[i]));
  }
  const Hdf5File& file_;
  std::string where_;
  std::string group_;
  std::uint64_t rows_ = 0;
};

constexpr std::int64_t kMost = INT32_MAX;

Json parse_object(const std::string& text, const std::string& where, const char* what) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw InputError("{}: {} is not JSON", where, what);
  return json;
}

void read_runs(const Hdf5File& file, const std::string& where, std::vector<ResultRun>& runs) {
  const Reader table(file, where, "/runs", "outcome");
  runs.resize(table.rows());
  table.texts("settings", [&](std::size_t i, const std::string& v) {
    runs[i].settings = parse_object(v, where, "/runs/settings");
  });
  table.texts("outcome", [&](std::size_t i, const std::string& v) {
    for (const RunOutcome outcome :
         {RunOutcome::done, RunOutcome::infeasible, RunOutcome::invalid}) {
      if (v == to_string(outcome)) {
        runs[i].outcome = outcome;
        return;
      }
    }
    throw InputError("{}: /runs/outcome has '{}', expected done, infeasible or invalid", where, v);
  });
  const auto text = [&](const char* name, std::string ResultRun::*field) {
    table.texts(name, [&](std::size_t i, std::string v) { runs[i].*field = std::move(v); });
  };
  text("message", &ResultRun::message);
  text("policy", &ResultRun::policy);
  text("remark", &ResultRun::remark);
  text("model", &ResultRun::model);
  text("profile", &ResultRun::profile);
  table.integers("analytic", 0, 1, [&](std::size_t i, auto v) { runs[i].analytic = v != 0; });
  // Files of earlier versions do not have it.
  if (file.exists("/runs/provenance")) {
    table.texts("provenance", [&](std::size_t i, const std::string& v) {
      runs[i].provenance = parse_object(v, where, "/runs/provenance");
      if (!runs[i].provenance.is_array()) {
        throw InputError("{}: /runs/provenance is not a list", where);
      }
    });
  }
  table.integers("devices", 0, kMost,
                 [&](std::size_t i, auto v) { runs[i].devices = static_cast<int>(v); });
  const auto number = [&](const char* name, auto set) {
    table.column<double>(name, [&](std::size_t i, double v) {
      if (runs[i].outcome != RunOutcome::done) return;
      if (!std::isfinite(v) || v < 0) {
        throw InputError("{}: /runs/{} has the value {}, expected a number from 0", where, name, v);
      }
      set(runs[i].summary, v);
    });
  };
  number("mean_ms", [](RunSummary& s, double v) { s.mean_seconds = v / kMilliseconds; });
  number("p95_ms", [](RunSummary& s, double v) { s.p95_seconds = v / kMilliseconds; });
  number("tokens_per_second", [](RunSummary& s, double v) { s.tokens_per_second = v; });
  number("mfu", [](RunSummary& s, double v) { s.mfu = v; });
  number("bubble_share", [](RunSummary& s, double v) { s.bubble_share = v; });
  number("exposed_communication_ms",
         [](RunSummary& s, double v) { s.exposed_communication_seconds = v / kMilliseconds; });
  number("memory_bytes", [](RunSummary& s, double v) { s.memory_bytes = v; });
  number("events",
         [](RunSummary& s, double v) { s.events = static_cast<std::uint64_t>(std::min(v, 1e18)); });
}

void read_grid(const Hdf5File& file, const std::string& where, Results& results) {
  const Json axes =
      parse_object(file.text_attribute("/grid", "axes"), where, "attribute 'axes' of /grid");
  if (!axes.is_array()) throw InputError("{}: attribute 'axes' of /grid is not a list", where);
  const std::vector<std::string> members = file.members("/grid");
  for (const Json& axis : axes) {
    const std::string name = axis.is_string() ? axis.get<std::string>() : axis.dump();
    if (std::ranges::find(members, name) == members.end()) {
      throw InputError("{}: /grid has no column for the axis '{}'", where, name);
    }
    results.axes.push_back(name);
    const Reader table(file, where, "/grid", name);
    if (table.rows() != results.runs.size()) {
      throw InputError("{}: /grid/{} has {} rows, expected {} as /runs has", where, name,
                       table.rows(), results.runs.size());
    }
    const auto add = [&](std::size_t i, auto v) { results.runs[i].axis_values.emplace_back(v); };
    if (file.has_attribute("/grid/" + name, "units")) {
      table.column<double>(name, add);
    } else {
      table.texts(name, add);
    }
  }
}

/// Calls set(index of the row in its run, run, row) with the runs that a group's rows belong to.
std::vector<std::size_t> runs_of_rows(const Reader& table, const Results& results) {
  std::vector<std::size_t> runs(table.rows());
  const auto most = static_cast<std::int64_t>(results.runs.size()) - 1;
  table.integers("run", 0, most,
                 [&](std::size_t i, auto v) { runs[i] = static_cast<std::size_t>(v); });
  return runs;
}

void read_iterations(const Hdf5File& file, const std::string& where, Results& results) {
  const Reader table(file, where, "/iterations", "run");
  const std::vector<std::size_t> runs = runs_of_rows(table, results);
  std::vector<IterationResult> rows(table.rows());
  const auto number = [&](const char* name, auto set) {
    table.column<double>(name, [&](std::size_t i, double v) {
      if (!std::isfinite(v) || v < 0) {
        throw InputError("{}: /iterations/{} has the value {}, expected a number from 0", where,
                         name, v);
      }
      set(rows[i], v);
    });
  };
  number("time_ms", [](IterationResult& r, double v) { r.time_seconds = v / kMilliseconds; });
  number("bubble_share", [](IterationResult& r, double v) { r.bubble_share = v; });
  number("exposed_communication_ms",
         [](IterationResult& r, double v) { r.exposed_communication_seconds = v / kMilliseconds; });
  number("mfu", [](IterationResult& r, double v) { r.mfu = v; });
  number("memory_bytes", [](IterationResult& r, double v) { r.memory_bytes = v; });
  table.integers("strategy", 0, kMost,
                 [&](std::size_t i, auto v) { rows[i].strategy = static_cast<int>(v); });
  table.integers("tokens", 0, INT64_MAX,
                 [&](std::size_t i, auto v) { rows[i].tokens = static_cast<std::uint64_t>(v); });
  for (std::size_t i = 0; i < rows.size(); ++i) {
    results.runs[runs[i]].iterations.push_back(rows[i]);
  }
  const Reader texts(file, where, "/strategies", "run");
  const std::vector<std::size_t> owners = runs_of_rows(texts, results);
  texts.texts("text", [&](std::size_t i, std::string v) {
    results.runs[owners[i]].strategies.push_back(std::move(v));
  });
  for (const ResultRun& run : results.runs) {
    for (const IterationResult& iteration : run.iterations) {
      if (static_cast<std::size_t>(iteration.strategy) >= run.strategies.size()) {
        throw InputError("{}: /iterations/strategy has the value {}, but its run has {} strategies",
                         where, iteration.strategy, run.strategies.size());
      }
    }
  }
}

void read_stages(const Hdf5File& file, const std::string& where, Results& results) {
  const Reader table(file, where, "/stages", "run");
  const std::vector<std::size_t> runs = runs_of_rows(table, results);
  std::vector<StageResult> rows(table.rows());
  table.integers("pipeline", 0, kMost,
                 [&](std::size_t i, auto v) { rows[i].pipeline = static_cast<int>(v); });
  table.integers("stage_in_pipeline", 0, kMost,
                 [&](std::size_t i, auto v) { rows[i].index = static_cast<int>(v); });
  table.texts("scheme", [&](std::size_t i, std::string v) { rows[i].scheme = std::move(v); });
  const auto seconds = [&](const char* name, double StageReplay::*field) {
    table.column<double>(
        name, [&](std::size_t i, double v) { rows[i].times.*field = v / kMilliseconds; });
  };
  seconds("compute_ms", &StageReplay::compute_seconds);
  seconds("communication_ms", &StageReplay::communication_seconds);
  seconds("exposed_communication_ms", &StageReplay::exposed_communication_seconds);
  seconds("idle_ms", &StageReplay::idle_seconds);
  table.integers("live_micro_batches", 0, kMost, [&](std::size_t i, auto v) {
    rows[i].times.peak_live_micro_batches = static_cast<int>(v);
  });
  table.integers("live_tokens", 0, INT64_MAX, [&](std::size_t i, auto v) {
    rows[i].times.peak_live_tokens = static_cast<std::uint64_t>(v);
  });
  for (const auto& [name, field] : kMemoryParts) {
    table.column<double>(name, [&, f = field](std::size_t i, double v) { rows[i].memory.*f = v; });
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::optional<KeptIteration>& kept = results.runs[runs[i]].kept;
    if (!kept) throw InputError("{}: /stages/run has the value {}, not in /kept", where, runs[i]);
    kept->stages.push_back(std::move(rows[i]));
  }
}

template <typename Enum>
std::vector<Enum> meanings(const Hdf5File& file, const std::string& where, const char* dataset,
                           int count) {
  std::vector<Enum> result;
  for (const std::string& name : file.read_texts(dataset)) {
    int found = 0;
    while (found < count && name != to_string(static_cast<Enum>(found))) ++found;
    if (found == count) throw InputError("{}: {} has the unknown name '{}'", where, dataset, name);
    result.push_back(static_cast<Enum>(found));
  }
  return result;
}

void read_events(const Hdf5File& file, const std::string& where, Results& results) {
  const Reader kept(file, where, "/kept", "run");
  const std::vector<std::size_t> keepers = runs_of_rows(kept, results);
  for (const std::size_t run : keepers) results.runs[run].kept.emplace();
  kept.integers("iteration", 0, kMost, [&](std::size_t i, auto v) {
    results.runs[keepers[i]].kept->iteration = static_cast<int>(v);
  });
  kept.column<double>("memory_limit_bytes", [&](std::size_t i, double v) {
    results.runs[keepers[i]].kept->memory_limit_bytes = v;
  });
  read_stages(file, where, results);

  const auto ops = meanings<Op>(file, where, "/op_names", kOps);
  const auto streams = meanings<StreamKind>(file, where, "/stream_names", kStreams);
  const Reader table(file, where, "/events", "run");
  const std::vector<std::size_t> runs = runs_of_rows(table, results);
  std::vector<TimelineEvent> rows(table.rows());
  const auto small = [&](const char* name, std::int64_t low, std::int64_t high, auto set) {
    table.integers(name, low, high,
                   [&](std::size_t i, auto v) { set(rows[i], static_cast<int>(v)); });
  };
  small("stage", 0, kMost, [](TimelineEvent& e, int v) { e.stage = v; });
  small("instruction", 0, kMost, [](TimelineEvent& e, int v) { e.instruction = v; });
  small("op", 0, static_cast<std::int64_t>(ops.size()) - 1,
        [&](TimelineEvent& e, int v) { e.op = ops[static_cast<std::size_t>(v)]; });
  small("stream", 0, static_cast<std::int64_t>(streams.size()) - 1,
        [&](TimelineEvent& e, int v) { e.stream = streams[static_cast<std::size_t>(v)]; });
  small("micro_batch", -1, kMost, [](TimelineEvent& e, int v) { e.micro_batch = v; });
  table.column<double>("start_ms",
                       [&](std::size_t i, double v) { rows[i].start_seconds = v / kMilliseconds; });
  table.column<double>("end_ms",
                       [&](std::size_t i, double v) { rows[i].end_seconds = v / kMilliseconds; });
  table.column<std::int64_t>("bytes", [&](std::size_t i, auto v) { rows[i].bytes = v; });
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::optional<KeptIteration>& owner = results.runs[runs[i]].kept;
    TimelineEvent& event = rows[i];
    if (!owner || static_cast<std::size_t>(event.stage) >= owner->stages.size() ||
        !(event.start_seconds >= 0 && event.end_seconds >= event.start_seconds &&
          std::isfinite(event.end_seconds))) {
      throw InputError("{}: row {} of /events names a stage or a time that cannot be", where, i);
    }
    event.iteration = owner->iteration;
    owner->timeline.events.push_back(event);
  }
}

}  // namespace

void write_results(const Results& results, const std::filesystem::path& path) {
  AtomicFile target(path);
  Hdf5File file = Hdf5File::create(target.temporary(), path.string());
  file.set_attribute("/", "format", std::string(kFormat));
  file.set_attribute("/", "version", kVersion);
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

Results read_results(const std::filesystem::path& path) {
  const Hdf5File file = Hdf5File::open(path);
  const std::string where = path.string();
  if (!file.has_attribute("/", "format") || file.text_attribute("/", "format") != kFormat) {
    throw InputError("{}: not a results file (attribute 'format' is not '{}')", where, kFormat);
  }
  if (const std::int64_t version = file.integer_attribute("/", "version"); version != kVersion) {
    throw InputError("{}: results version {}, expected {}", where, version, kVersion);
  }
  Results results;
  results.name = file.text_attribute("/", "name");
  read_runs(file, where, results.runs);
  read_grid(file, where, results);
  read_iterations(file, where, results);
  read_events(file, where, results);
  return results;
}

}  // namespace hydraulis
