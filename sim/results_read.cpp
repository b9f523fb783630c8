// Reads a results file.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/hdf5.h"
#include "sim/results.h"
#include "sim/results_schema.h"

namespace hydraulis {
namespace {

using detail::kMemoryParts;
using detail::kMilliseconds;
using detail::kOps;

/// Deflate shrinks a column of 8-byte numbers at most about 1030 times.
constexpr std::uint64_t kMostRowsPerByte = 130;

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

Results read_results(const std::filesystem::path& path) {
  const Hdf5File file = Hdf5File::open(path);
  const std::string where = path.string();
  if (!file.has_attribute("/", "format") ||
      file.text_attribute("/", "format") != detail::kResultsFormat) {
    throw InputError("{}: not a results file (attribute 'format' is not '{}')", where,
                     detail::kResultsFormat);
  }
  if (const std::int64_t version = file.integer_attribute("/", "version");
      version != detail::kResultsVersion) {
    throw InputError("{}: results version {}, expected {}", where, version,
                     detail::kResultsVersion);
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
