#include "costmodel/nccl_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/atomic_file.h"
#include "base/error.h"
#include "costmodel/nccl_tests_lines.h"

namespace hydraulis {
namespace {

using detail::NcclTestsRow;
using detail::NcclTestsRun;

constexpr std::int64_t kMostBytes = std::int64_t{1} << 48;
constexpr double kRounding = 0.006;  // of a printed bandwidth, GB/s
constexpr double kTolerance = 0.02;
/// Below this a printed bandwidth has too few digits to tell anything.
constexpr double kTelling = 0.5;

constexpr std::array<std::pair<const char*, Collective>, 6> kTests = {{
    {"all_reduce_perf", Collective::all_reduce},
    {"all_gather_perf", Collective::all_gather},
    {"reduce_scatter_perf", Collective::reduce_scatter},
    {"broadcast_perf", Collective::broadcast},
    {"alltoall_perf", Collective::all_to_all},
    {"sendrecv_perf", Collective::send},
}};

bool near(double value, double expected, double tolerance = kTolerance) {
  return std::abs(value - expected) <= kRounding + tolerance * expected;
}

/// How a run's numbers hang together: printed algbw = bytes·size_factor·share / (time·unit).
struct Reading {
  double seconds_per_unit = 1e-6;
  double size_factor = 1;      ///< total = printed size · this
  double bandwidth_share = 1;  ///< old versions printed (n−1)/n of size / time for some tests
};

double algbw(const NcclTestsRow& row, const Reading& reading) {
  return static_cast<double>(row.bytes) * reading.size_factor * reading.bandwidth_share /
         (row.time * reading.seconds_per_unit) * 1e-9;
}

/// Times in milliseconds have three digits after the point.
bool agrees(const NcclTestsRow& row, const Reading& reading) {
  const double digits = reading.seconds_per_unit > 1e-6 ? 0.0005 / row.time : 0;
  return near(row.algbw, algbw(row, reading), kTolerance + digits);
}

bool tells(const NcclTestsRow& row) {
  return row.algbw >= kTelling && row.time > 0 && row.bytes > 0;
}

class Import {
 public:
  Import(const std::string& where, const NcclTestsOptions& options)
      : where_(where), options_(options) {}

  void add(const NcclTestsRun& run) {
    if (run.rows.empty()) return;
    const std::optional<Collective> operation = operation_of(run);
    if (!operation) return;
    const int ranks = ranks_of(run, *operation);
    if (ranks == 1) {
      one_rank_runs_ += std::max<std::ptrdiff_t>(1, std::ranges::count(run.ranks, 0));
      return;
    }
    const int nodes = nodes_of(run, ranks);
    const Reading reading = reading_of(run, *operation, ranks);
    // A whole run that failed its check without saying where has no good point.
    const bool all_wrong = run.check_failed && std::ranges::none_of(run.rows, &NcclTestsRow::wrong);
    for (const NcclTestsRow& row : run.rows)
      add_row(run, row, all_wrong, *operation, ranks, nodes, reading);
    result_.most_ranks = std::max(result_.most_ranks, ranks);
    result_.most_nodes = std::max(result_.most_nodes, nodes);
    if (result_.device.empty()) result_.device = run.device;
    if (result_.host.empty() && !run.hosts.empty()) result_.host = run.hosts.front();
    if (result_.version.empty()) result_.version = run.version;
  }

  NcclTestsResult finish() {
    if (one_rank_runs_ > 0) {
      const std::string said = fmt::format(
          "{} run{} of one rank: nothing is communicated (nccl-tests was built without MPI=1, or "
          "not started by mpirun)",
          one_rank_runs_, one_rank_runs_ == 1 ? "" : "s");
      if (points_.empty() && result_.excluded.empty()) throw InputError("{}: {}", where_, said);
      note(said + "; left aside");
    }
    if (points_.empty() && result_.excluded.empty()) {
      throw InputError("{}: no measurement found, expected the output of nccl-tests{}", where_,
                       result_.notes.empty() ? "" : " (" + result_.notes.front() + ")");
    }
    for (auto& [key, seconds] : points_) {
      std::sort(seconds.begin(), seconds.end());
      CollectiveSample sample;
      std::tie(sample.operation, sample.ranks, sample.nodes, sample.bytes) = key;
      const std::size_t count = seconds.size();
      sample.time.median_seconds = (seconds[(count - 1) / 2] + seconds[count / 2]) / 2;
      sample.time.low_seconds = seconds.front();
      sample.time.high_seconds = seconds.back();
      sample.time.repeats = repeats_.at(key);
      sample.checked = checked_.at(key);
      result_.samples.push_back(sample);
    }
    return std::move(result_);
  }

 private:
  using Key = std::tuple<Collective, int, int, std::int64_t>;

  void note(std::string text) {
    if (std::ranges::find(result_.notes, text) == result_.notes.end()) {
      result_.notes.push_back(std::move(text));
    }
  }

  std::optional<Collective> operation_of(const NcclTestsRun& run) {
    if (run.test.empty()) {
      if (options_.operation) return options_.operation;
      throw InputError(
          "{}: line {}: the output does not say which test it is; name it with --collective",
          where_, run.line);
    }
    for (const auto& [name, operation] : kTests) {
      if (run.test == name) {
        if (operation == Collective::send)
          note("sendrecv_perf: every rank sends and receives at once");
        return operation;
      }
    }
    note(fmt::format("{} is left aside: training does not use it", run.test));
    return std::nullopt;
  }

  int ranks_of(const NcclTestsRun& run, Collective operation) const {
    int ranks = 0;
    for (const int rank : run.ranks) ranks = std::max(ranks, rank + 1);
    if (ranks == 0) ranks = options_.ranks > 0 ? options_.ranks : ranks_from_factor(run, operation);
    if (options_.ranks > 0 && ranks != options_.ranks) {
      throw InputError(
          "{}: line {}: {} rank{} took part, expected {} (--ranks){}", where_, run.line, ranks,
          ranks == 1 ? "" : "s", options_.ranks,
          ranks == 1 ? ": nccl-tests was built without MPI=1, or not started by mpirun" : "");
    }
    if (ranks > 1) check_factor(run, operation, ranks);
    return ranks;
  }

  /// The number of ranks whose factor makes busbw of algbw, if there is only one.
  int ranks_from_factor(const NcclTestsRun& run, Collective operation) const {
    const auto& row = *std::ranges::max_element(run.rows, {}, &NcclTestsRow::algbw);
    int found = 0;
    int matches = 0;
    constexpr int kMostRanks = 1 << 16;
    for (int ranks = 2; ranks <= kMostRanks && row.algbw >= kTelling; ++ranks) {
      const double expected = row.algbw * bus_factor(operation, ranks);
      const double rounding = 0.0051 * (1 + bus_factor(operation, ranks));
      if (std::abs(row.busbw - expected) > rounding) continue;
      found = ranks;
      if (++matches > 1) break;
    }
    if (row.busbw == 0 && row.algbw > 0) return 1;
    if (matches == 1) return found;
    throw InputError(
        "{}: line {}: the output does not list its ranks, nor do its bandwidths tell how many "
        "there "
        "were; give --ranks",
        where_, row.line);
  }

  void check_factor(const NcclTestsRun& run, Collective operation, int ranks) const {
    for (const NcclTestsRow& row : run.rows) {
      if (row.algbw < kTelling) continue;
      const double expected = row.algbw * bus_factor(operation, ranks);
      // Old versions put the factor of gathers into algbw.
      if (near(row.busbw, expected) || near(row.busbw, row.algbw)) continue;
      throw InputError(
          "{}: line {}: busbw {} is {:.4f} of algbw {}, expected {:.4f} for {} on {} ranks", where_,
          row.line, row.busbw, row.busbw / row.algbw, row.algbw, bus_factor(operation, ranks),
          to_string(operation), ranks);
    }
  }

  int nodes_of(const NcclTestsRun& run, int ranks) const {
    if (options_.nodes > 0) return options_.nodes;
    const std::set<std::string> hosts(run.hosts.begin(), run.hosts.end());
    // Several groups that measured side by side list rank 0 each.
    const auto groups = std::max<std::size_t>(1, std::ranges::count(run.ranks, 0));
    const auto nodes = static_cast<int>(std::max<std::size_t>(1, hosts.size() / groups));
    return ranks % nodes == 0 ? nodes : 1;
  }

  Reading reading_of(const NcclTestsRun& run, Collective operation, int ranks) {
    const double share = static_cast<double>(ranks - 1) / ranks;
    const bool has_parts = operation == Collective::all_gather ||
                           operation == Collective::reduce_scatter ||
                           operation == Collective::all_to_all;
    std::vector<Reading> readings;
    for (const double unit : {1e-6, 1e-3}) {
      if (unit > 1e-6 && run.times_in_microseconds) continue;
      readings.push_back({unit, 1, 1});
      if (has_parts) readings.push_back({unit, 1, share});
      if (has_parts) readings.push_back({unit, static_cast<double>(ranks), 1});
      if (has_parts) readings.push_back({unit, static_cast<double>(ranks), share});
    }
    for (const Reading& reading : readings) {
      const bool fits = std::ranges::all_of(
          run.rows, [&](const NcclTestsRow& row) { return !tells(row) || agrees(row, reading); });
      if (!fits) continue;
      if (reading.size_factor > 1) {
        note(fmt::format("{}: the sizes are of one rank; stored are totals, {} times as much",
                         to_string(operation), ranks));
      }
      if (reading.bandwidth_share < 1) {
        note(fmt::format("{}: its algbw already holds the factor (n−1)/n; times are what counts",
                         to_string(operation)));
      }
      return reading;
    }
    const auto odd = std::ranges::find_if(run.rows, [&](const NcclTestsRow& row) {
      return tells(row) && !agrees(row, readings.front());
    });
    throw InputError("{}: line {}: {} bytes in {} us are {:.2f} GB/s, but algbw is {}", where_,
                     odd->line, odd->bytes, odd->time, algbw(*odd, readings.front()), odd->algbw);
  }

  void add_row(const NcclTestsRun& run, const NcclTestsRow& row, bool all_wrong,
               Collective operation, int ranks, int nodes, const Reading& reading) {
    if (row.bytes == 0) return;  // nothing was sent: too small for so many ranks
    const double total = static_cast<double>(row.bytes) * reading.size_factor;
    if (row.bytes < 0 || total > static_cast<double>(kMostBytes)) {
      throw InputError("{}: line {}: a size of {} bytes", where_, row.line, row.bytes);
    }
    const double seconds = row.time * reading.seconds_per_unit;
    const auto bytes = static_cast<std::int64_t>(total);
    const std::string what =
        fmt::format("{}, {} ranks on {} node{}, {} bytes (line {})", to_string(operation), ranks,
                    nodes, nodes == 1 ? "" : "s", bytes, row.line);
    if (row.wrong || all_wrong) {
      result_.data_check_failed = true;
      result_.excluded.push_back(
          {what, row.wrong ? "its data check failed"
                           : "the run's data check failed without saying for which size"});
      return;
    }
    const double bus = total / seconds * bus_factor(operation, ranks);
    if (!(seconds > 0) || bus > options_.ceiling_bytes_per_second) {
      result_.excluded.push_back(
          {what, fmt::format("{} us are {:.0f} GB/s on the bus, over the ceiling of {:.0f}",
                             row.time * reading.seconds_per_unit * 1e6, bus * 1e-9,
                             options_.ceiling_bytes_per_second * 1e-9)});
      return;
    }
    const int shown_ranks = operation == Collective::send ? 2 : ranks;
    const int shown_nodes = operation == Collective::send ? std::min(nodes, 2) : nodes;
    const Key key{operation, shown_ranks, shown_nodes, bytes};
    points_[key].push_back(seconds);
    repeats_[key] += run.iterations;
    const auto [entry, is_new] = checked_.try_emplace(key, row.checked);
    if (!is_new) entry->second = entry->second && row.checked;
  }

  const std::string& where_;
  const NcclTestsOptions& options_;
  NcclTestsResult result_;
  std::map<Key, std::vector<double>> points_;
  std::map<Key, int> repeats_;
  std::map<Key, bool> checked_;
  std::ptrdiff_t one_rank_runs_ = 0;
};

}  // namespace

double bus_factor(Collective operation, int ranks) {
  const double share = ranks > 0 ? static_cast<double>(ranks - 1) / ranks : 0;
  switch (operation) {
    case Collective::all_reduce:
      return 2 * share;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return share;
    case Collective::broadcast:
    case Collective::send:
      break;
  }
  return 1;
}

NcclTestsResult parse_nccl_tests(const std::string& text, const std::string& where,
                                 const NcclTestsOptions& options) {
  Import import(where, options);
  for (const NcclTestsRun& run : detail::read_runs(text, where)) import.add(run);
  return import.finish();
}

NcclTestsResult read_nccl_tests(const std::filesystem::path& path,
                                const NcclTestsOptions& options) {
  return parse_nccl_tests(read_text_file(path), path.string(), options);
}

void add_imported(const NcclTestsResult& result, const std::string& source,
                  OperatorProfile& profile) {
  const auto replaced = [&](const CollectiveSample& old) {
    return std::ranges::any_of(result.samples, [&](const CollectiveSample& sample) {
      return sample.operation == old.operation && sample.ranks == old.ranks &&
             sample.nodes == old.nodes;
    });
  };
  std::erase_if(profile.collectives, replaced);
  for (CollectiveSample sample : result.samples) {
    sample.imported_from = source;
    profile.collectives.push_back(std::move(sample));
  }
  profile.excluded.insert(profile.excluded.end(), result.excluded.begin(), result.excluded.end());
  profile.notes.push_back(fmt::format("collectives of {}: nccl-tests, sizes in total, {} points{}",
                                      source, result.samples.size(),
                                      result.version.empty() ? "" : " (" + result.version + ")"));
  for (const std::string& text : result.notes) {
    profile.notes.push_back(fmt::format("{}: {}", source, text));
  }
  MachineDescription& machine = profile.machine;
  if (machine.device.empty()) {
    machine.device = result.device.empty() ? "unknown" : result.device;
    machine.host = result.host;
  }
  if (profile.origin.empty()) profile.origin = "imported from nccl-tests";
  if (profile.kernels.empty()) {
    machine.ranks = std::max(machine.ranks, result.most_ranks);
    machine.nodes = std::max(machine.nodes, result.most_nodes);
  }
}

}  // namespace hydraulis
