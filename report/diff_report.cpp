#include <algorithm>
#include <cmath>
#include <limits>

#include "report/diff.h"

namespace hydraulis {
namespace {

constexpr double kMilliseconds = 1e3;
constexpr std::size_t kTopCauses = 10;
constexpr std::size_t kMicroBatchesShown = 20;

double ratio(double numerator, double denominator) {
  return denominator > 0 ? numerator / denominator : std::numeric_limits<double>::quiet_NaN();
}

/// The value that 95 % do not exceed.
double percentile95(std::vector<double> values) {
  std::ranges::sort(values);
  const auto rank = static_cast<std::size_t>(std::ceil(0.95 * static_cast<double>(values.size())));
  return values[rank - 1];
}

Table iteration_table(const TimelineDifference& difference) {
  Table table;
  table.title = "Iterations";
  table.columns = {{"iteration", "iteration", 0},
                   {"predicted_ms", "predicted ms", 3},
                   {"measured_ms", "measured ms", 3},
                   {"error", "error", 4}};
  for (const IterationDifference& each : difference.iterations) {
    table.rows.push_back({static_cast<std::int64_t>(each.iteration),
                          each.predicted_seconds * kMilliseconds,
                          each.measured_seconds * kMilliseconds, each.error()});
  }
  return table;
}

Table group_table(const std::string& title, const std::string& heading,
                  const std::vector<GroupDifference>& groups) {
  Table table;
  table.title = title;
  table.columns = {{"name", heading, 0, Align::left},
                   {"count", "count", 0},
                   {"predicted_ms", "predicted ms", 3},
                   {"measured_ms", "measured ms", 3},
                   {"error", "error", 4},
                   {"mean_abs_error", "mean |error|", 4}};
  for (const GroupDifference& group : groups) {
    table.rows.push_back(
        {group.name, group.count, group.predicted_seconds * kMilliseconds,
         group.measured_seconds * kMilliseconds,
         ratio(group.predicted_seconds - group.measured_seconds, group.measured_seconds),
         ratio(group.absolute_seconds, group.measured_seconds)});
  }
  return table;
}

/// The table's rows as an object by name.
Json by_name(const Table& table) {
  Json json = Json::object();
  for (Json& row : to_json(table)) {
    const std::string name = row.at("name");
    row.erase("name");
    json[name] = std::move(row);
  }
  return json;
}

Table cause_table(const TimelineDifference& difference) {
  Table table;
  table.title = "Top causes: what a stage's compute stream does, an iteration";
  table.columns = {{"stage", "stage", 0},
                   {"cause", "cause", 0, Align::left},
                   {"predicted_ms", "predicted ms", 3},
                   {"measured_ms", "measured ms", 3},
                   {"difference_ms", "difference ms", 3}};
  for (std::size_t i = 0; i < std::min(kTopCauses, difference.causes.size()); ++i) {
    const Cause& cause = difference.causes[i];
    table.rows.push_back({static_cast<std::int64_t>(cause.stage), cause.name,
                          cause.predicted_seconds * kMilliseconds,
                          cause.measured_seconds * kMilliseconds,
                          cause.difference() * kMilliseconds});
  }
  return table;
}

}  // namespace

Report diff_report(const TimelineDifference& difference) {
  double sum = 0;
  std::vector<double> absolute;
  for (const IterationDifference& each : difference.iterations) {
    sum += each.error();
    absolute.push_back(std::abs(each.error()));
  }
  double sum_absolute = 0;
  for (const double error : absolute) sum_absolute += error;
  const auto count = static_cast<double>(absolute.size());
  Table total;
  total.title = "Iteration time, error relative to the measured one";
  total.columns = {{"iterations", "iterations", 0},
                   {"mean_abs_error", "mean |error|", 4},
                   {"p95_abs_error", "p95 |error|", 4},
                   {"mean_error", "mean error", 4}};
  total.rows.push_back({static_cast<std::int64_t>(absolute.size()), sum_absolute / count,
                        percentile95(absolute), sum / count});
  total.notes = difference.notes;

  Table iterations = iteration_table(difference);
  Table kinds = group_table("By instruction kind", "kind", difference.by_kind);
  Table stages = group_table("By stage (compute stream)", "stage", difference.by_stage);
  Table batches = group_table("By micro-batch (compute stream)", "pipeline/micro-batch",
                              difference.by_micro_batch);
  Table causes = cause_table(difference);

  Json json = Json::object();
  const Json totals = to_json(total)[0];
  for (const char* key : {"mean_abs_error", "p95_abs_error", "mean_error"}) json[key] = totals[key];
  json["iterations"] = to_json(iterations);
  json["by_kind"] = by_name(kinds);
  json["by_stage"] = by_name(stages);
  json["by_micro_batch"] = by_name(batches);
  json["causes"] = to_json(causes);
  json["notes"] = difference.notes;
  if (batches.rows.size() > kMicroBatchesShown) {
    // The worst ones; JSON has all.
    std::ranges::stable_sort(batches.rows, std::ranges::greater(), [](const auto& row) {
      return std::abs(std::get<double>(row[2]) - std::get<double>(row[3]));
    });
    batches.rows.resize(kMicroBatchesShown);
    batches.title += ", the largest differences";
  }
  return {std::move(json),
          {std::move(iterations), std::move(kinds), std::move(stages), std::move(batches),
           std::move(causes), std::move(total)}};
}

}  // namespace hydraulis
