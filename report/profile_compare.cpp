#include "report/profile_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "report/profile_names.h"

namespace hydraulis {
namespace {

/// Below this difference two machines pass for equal: medians themselves are known to a few per
/// cent.
constexpr double kSame = 0.05;
/// A node this much slower than the median one is called slow.
constexpr double kSlow = 0.1;
/// From here on bandwidth decides how long a collective takes.
constexpr std::int64_t kLargeMessage = std::int64_t{1} << 20;

/// Ratios of one thing over sizes, as a sum of logarithms.
struct Ratios {
  double logarithms = 0;
  int points = 0;
  void add(double a, double b) {
    logarithms += std::log(b / a);
    ++points;
  }
  double mean() const { return std::exp(logarithms / points); }
};

class Comparison {
 public:
  Ratios total;

  void add(const std::string& what, double a, double b) {
    if (!rows_.contains(what)) order_.push_back(what);
    rows_[what].add(a, b);
    total.add(a, b);
  }

  /// Slowest of B first.
  std::vector<std::pair<std::string, Ratios>> rows() const {
    std::vector<std::pair<std::string, Ratios>> sorted;
    for (const std::string& what : order_) sorted.emplace_back(what, rows_.at(what));
    std::ranges::stable_sort(sorted, [](const auto& left, const auto& right) {
      return left.second.mean() > right.second.mean();
    });
    return sorted;
  }

 private:
  std::vector<std::string> order_;
  std::map<std::string, Ratios> rows_;
};

Comparison compare(const OperatorProfile& a, const OperatorProfile& b) {
  Comparison comparison;
  for (const KernelSample& mine : a.kernels) {
    for (const KernelSample& other : b.kernels) {
      if (mine.shape == other.shape && mine.data_type == other.data_type &&
          mine.tokens == other.tokens && mine.length == other.length) {
        comparison.add(kernel_name(mine.shape, mine.data_type), mine.time.median_seconds,
                       other.time.median_seconds);
      }
    }
  }
  for (const CollectiveSample& mine : a.collectives) {
    for (const CollectiveSample& other : b.collectives) {
      if (mine.operation == other.operation && mine.ranks == other.ranks &&
          mine.nodes == other.nodes && mine.bytes == other.bytes) {
        comparison.add(group_name(mine.operation, mine.ranks, mine.nodes) +
                           (mine.bytes >= kLargeMessage ? ", from 1 MiB" : ", below 1 MiB"),
                       mine.time.median_seconds, other.time.median_seconds);
      }
    }
  }
  for (const CopySample& mine : a.copies) {
    for (const CopySample& other : b.copies) {
      if (mine.direction == other.direction && mine.bytes == other.bytes) {
        comparison.add(std::string("copy ") + to_string(mine.direction), mine.time.median_seconds,
                       other.time.median_seconds);
      }
    }
  }
  return comparison;
}

Table difference_table(const MachineDescription& a, const MachineDescription& b, Json& json) {
  Table table;
  table.title = "What differs";
  table.columns = {
      {"field", "field", 0, Align::left}, {"a", "A", 0, Align::left}, {"b", "B", 0, Align::left}};
  const auto add = [&](const std::string& field, const std::string& mine,
                       const std::string& other) {
    if (mine == other) return;
    table.rows.push_back({field, mine, other});
    json.push_back({{"field", field}, {"a", mine}, {"b", other}});
  };
  const auto number = [](double value) { return fmt::format("{:g}", value); };
  add("device", a.device, b.device);
  add("processor", a.processor, b.processor);
  add("host", a.host, b.host);
  add("date", a.date, b.date);
  add("ranks", number(a.ranks), number(b.ranks));
  add("nodes", number(a.nodes), number(b.nodes));
  add("cores", number(a.cores), number(b.cores));
  add("threads a rank", number(a.threads_per_rank), number(b.threads_per_rank));
  std::map<std::string, std::pair<std::string, std::string>> software;
  for (const auto& [name, version] : a.software) software[name].first = version;
  for (const auto& [name, version] : b.software) software[name].second = version;
  for (const auto& [name, versions] : software) add(name, versions.first, versions.second);
  return table;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

/// A node or a rank: the slowest of its ranks, which the others wait for.
struct Part {
  std::string name;
  std::int64_t ranks = 0;
  double flops = HUGE_VAL;
  double copy = HUGE_VAL;
};

std::vector<Part> parts_of(const std::vector<RankSpeed>& speeds, bool by_rank) {
  std::vector<Part> parts;
  for (const RankSpeed& speed : speeds) {
    const std::string name =
        by_rank ? fmt::format("rank {} ({})", speed.rank, speed.host) : speed.host;
    auto part = std::ranges::find(parts, name, &Part::name);
    if (part == parts.end()) part = parts.insert(parts.end(), Part{name});
    ++part->ranks;
    part->flops = std::min(part->flops, speed.flops);
    part->copy = std::min(part->copy, speed.copy_bytes_per_second);
  }
  return parts;
}

}  // namespace

Report compare_profiles(const OperatorProfile& a, const std::string& name_a,
                        const OperatorProfile& b, const std::string& name_b) {
  const Comparison comparison = compare(a, b);
  if (comparison.total.points == 0) {
    throw InputError(
        "{} and {} have no measured point in common (kernel, shape and size; or "
        "collective, ranks, nodes and bytes)",
        name_a, name_b);
  }
  const double ratio = comparison.total.mean();
  const bool b_slower = ratio > 1 + kSame;
  const bool a_slower = ratio < 1 / (1 + kSame);
  Report report;
  report.json = {{"a", name_a},
                 {"b", name_b},
                 {"ratio", ratio},
                 {"points", comparison.total.points},
                 {"slower", b_slower   ? Json("b")
                            : a_slower ? Json("a")
                                       : Json()}};
  Table table;
  table.title = fmt::format("Times of B ({}) over those of A ({})", name_b, name_a);
  table.columns = {{"what", "what", 0, Align::left}, {"points", "points"}, {"ratio", "B / A", 3}};
  report.json["rows"] = Json::array();
  for (const auto& [what, ratios] : comparison.rows()) {
    table.rows.push_back({what, std::int64_t{ratios.points}, ratios.mean()});
    report.json["rows"].push_back(
        {{"what", what}, {"points", ratios.points}, {"ratio", ratios.mean()}});
  }
  table.notes.push_back(
      a_slower || b_slower
          ? fmt::format("the slow one is {} ({}): {:.2f} times the other's time on average over {} "
                        "points",
                        b_slower ? "B" : "A", b_slower ? name_b : name_a,
                        b_slower ? ratio : 1 / ratio, comparison.total.points)
          : fmt::format(
                "equally fast: B takes {:.2f} times the time of A on average over {} points", ratio,
                comparison.total.points));
  report.json["notes"] = table.notes;
  report.tables.push_back(std::move(table));
  report.json["differences"] = Json::array();
  Table differences = difference_table(a.machine, b.machine, report.json["differences"]);
  if (!differences.rows.empty()) report.tables.push_back(std::move(differences));
  return report;
}

Report compare_nodes(const OperatorProfile& profile, const std::string& where) {
  std::vector<Part> parts = parts_of(profile.ranks, false);
  const bool by_rank = parts.size() < 2;
  if (by_rank) parts = parts_of(profile.ranks, true);
  if (parts.size() < 2) {
    throw InputError(
        "{}: field 'ranks' has {} rank{}, expected at least 2 to compare, or name a "
        "second profile",
        where, profile.ranks.size(), profile.ranks.size() == 1 ? "" : "s");
  }
  std::vector<double> flops;
  std::vector<double> copies;
  for (const Part& part : parts) {
    flops.push_back(part.flops);
    copies.push_back(part.copy);
  }
  // Of two parts the faster one is the measure: the mean of both would hide the slow one.
  const bool pair = parts.size() == 2;
  const double usual_flops = pair ? std::max(flops[0], flops[1]) : median(flops);
  const double usual_copy = pair ? std::max(copies[0], copies[1]) : median(copies);
  Report report;
  report.json = {{"rows", Json::array()}, {"slow", Json::array()}};
  Table table;
  table.title = fmt::format("{} of {}, all working at once", by_rank ? "Ranks" : "Nodes", where);
  table.columns = {{"name", by_rank ? "rank" : "node", 0, Align::left},
                   {"ranks", "ranks"},
                   {"gflops", "slowest rank's GFLOP/s", 1},
                   {"copy_gigabytes_per_second", "copies GB/s", 1},
                   {"relative", "relative", 3}};
  std::string slow;
  for (const Part& part : parts) {
    const double relative = std::min(part.flops / usual_flops, part.copy / usual_copy);
    table.rows.push_back({part.name, part.ranks, part.flops * 1e-9, part.copy * 1e-9, relative});
    report.json["rows"].push_back({{"name", part.name},
                                   {"ranks", part.ranks},
                                   {"flops", part.flops},
                                   {"copy_bytes_per_second", part.copy},
                                   {"relative", relative}});
    if (relative >= 1 - kSlow) continue;
    report.json["slow"].push_back(part.name);
    slow += fmt::format("{}{} ({:.0f} %)", slow.empty() ? "" : ", ", part.name, 100 * relative);
  }
  table.notes.push_back(
      slow.empty() ? fmt::format("none is more than {:.0f} % slower than {}", 100 * kSlow,
                                 pair ? "the other" : "the median")
                   : fmt::format("slow: {} of the {} speed", slow, pair ? "other's" : "median"));
  report.json["notes"] = table.notes;
  report.tables.push_back(std::move(table));
  return report;
}

}  // namespace hydraulis
