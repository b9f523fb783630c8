#include "report/collectives_report.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "costmodel/nccl_tests.h"

namespace hydraulis {
namespace {

constexpr double kMilliseconds = 1e3;
constexpr double kGiga = 1e9;
constexpr std::int64_t kLarge = std::int64_t{16} << 20;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// Mean of |error|, over those from a size on.
class Errors {
 public:
  void add(double error) {
    sum_ += std::abs(error);
    ++count_;
  }
  double mean() const { return count_ > 0 ? sum_ / count_ : kNone; }
  int count() const { return count_; }

 private:
  double sum_ = 0;
  int count_ = 0;
};

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

/// Milliseconds by one algorithm, or nothing where the operation has not got it.
Cell by_algorithm(const CollectiveSample& point, const GroupPlacement& group,
                  const CollectiveNetwork& network, CollectiveAlgorithm algorithm) {
  const CollectiveCost cost =
      collective_cost(point.operation, group, static_cast<double>(point.bytes), network, algorithm);
  if (cost.algorithm != algorithm) return {};
  return cost.seconds() * kMilliseconds;
}

}  // namespace

Report collectives_report(const CollectivesQuery& query) {
  const CollectiveNetwork network = collective_network(query.cluster);
  Table table;
  table.columns = {{"operation", "operation", 0, Align::left},
                   {"devices", "devices", 0},
                   {"nodes", "nodes", 0},
                   {"bytes", "bytes", 0},
                   {"algorithm", "algorithm", 0, Align::left},
                   {"protocol", "protocol", 0, Align::left},
                   {"ms", "ms", 4},
                   {"latency_ms", "of it latency", 4},
                   {"busbw_gigabytes_per_second", "busbw GB/s", 1},
                   {"ring_ms", "ring ms", 4},
                   {"tree_ms", "tree ms", 4},
                   {"hierarchical_ms", "hierarchical ms", 4},
                   {"measured_ms", "measured ms", 4},
                   {"error", "error", 3}};
  Errors all;
  Errors large;
  for (const CollectiveSample& point : query.points) {
    const GroupPlacement group = even_placement(point.ranks, point.nodes);
    const auto bytes = static_cast<double>(point.bytes);
    const CollectiveCost cost =
        collective_cost(point.operation, group, bytes, network, query.algorithm);
    const double seconds = cost.seconds();
    const double measured = point.time.median_seconds;
    const double error = measured > 0 ? seconds / measured - 1 : kNone;
    if (measured > 0) all.add(error);
    if (measured > 0 && point.bytes >= kLarge) large.add(error);
    const double busbw =
        seconds > 0 ? bus_factor(point.operation, point.ranks) * bytes / seconds / kGiga : kNone;
    const auto by = [&](CollectiveAlgorithm algorithm) {
      return by_algorithm(point, group, network, algorithm);
    };
    table.rows.push_back(
        {std::string(to_string(point.operation)), std::int64_t{point.ranks},
         std::int64_t{point.nodes}, point.bytes, std::string(to_string(cost.algorithm)),
         std::string(to_string(cost.protocol)), seconds * kMilliseconds,
         cost.latency_seconds * kMilliseconds, busbw, by(CollectiveAlgorithm::ring),
         by(CollectiveAlgorithm::tree), by(CollectiveAlgorithm::hierarchical),
         measured > 0 ? Cell(measured * kMilliseconds) : Cell(), error});
  }
  table.notes.push_back(fmt::format(
      "cluster {}: {:.4g} GB/s and {:.3g} us inside a node, {:.4g} GB/s and {:.3g} us a device "
      "between nodes{}",
      query.cluster.name, network.inside.bandwidth_bytes_per_second / kGiga,
      network.inside.latency_seconds * 1e6, network.between.bandwidth_bytes_per_second / kGiga,
      network.between.latency_seconds * 1e6,
      network.generation == NcclGeneration::none
          ? "; no library's efficiencies"
          : fmt::format(", as NCCL's public cost table counts {} (a prior, not measured)",
                        to_string(network.generation))));
  if (all.count() > 0) {
    std::string text = fmt::format("mean absolute error over {} measurements: {:.1f} %",
                                   all.count(), 100 * all.mean());
    if (large.count() > 0 && large.count() < all.count()) {
      text +=
          fmt::format(", over the {} from 16 MiB on: {:.1f} %", large.count(), 100 * large.mean());
    }
    table.notes.push_back(std::move(text));
  }
  Report report;
  report.json["points"] = to_json(table);
  report.json["mean_abs_error"] = number_or_null(all.mean());
  report.json["mean_abs_error_from_16_mib"] = number_or_null(large.mean());
  report.json["notes"] = table.notes;
  report.tables = {std::move(table)};
  return report;
}

}  // namespace hydraulis
