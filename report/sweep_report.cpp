#include "report/sweep_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace hydraulis {
namespace {

constexpr double kMilliseconds = 1e3;

Cell axis_cell(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) {
    const auto number = value.get<double>();
    constexpr double kWhole = 1e15;
    if (number ==
        static_cast<double>(static_cast<std::int64_t>(std::clamp(number, -kWhole, kWhole)))) {
      return static_cast<std::int64_t>(number);
    }
    return number;
  }
  return value.dump();
}

/// Axes whose values all give the same, whatever the others are: a what-if that asks nothing.
std::vector<std::string> axes_without_effect(const Results& results) {
  std::vector<std::string> found;
  for (std::size_t a = 0; a < results.axes.size(); ++a) {
    std::map<std::string, std::set<std::tuple<RunOutcome, double, double>>> outcomes;
    std::set<std::string> values;
    for (const ResultRun& run : results.runs) {
      Json others = run.axis_values;
      others[a] = nullptr;
      outcomes[others.dump()].emplace(run.outcome, run.summary.mean_seconds,
                                      run.summary.p95_seconds);
      values.insert(run.axis_values[a].dump());
    }
    const bool same = std::ranges::all_of(
        outcomes, [](const auto& outcome) { return outcome.second.size() == 1; });
    if (same && values.size() > 1) found.push_back(results.axes[a]);
  }
  return found;
}

}  // namespace

Report sweep_report(const Results& results, const SweepContext& context) {
  Table table;
  table.title = results.name;
  for (std::size_t a = 0; a < results.axes.size(); ++a) {
    const bool texts = std::ranges::any_of(
        results.runs, [&](const ResultRun& run) { return run.axis_values[a].is_string(); });
    table.columns.push_back(
        {results.axes[a], results.axes[a], 3, texts ? Align::left : Align::right});
  }
  for (const Column& column : {Column{"outcome", "outcome", 0, Align::left},
                               {"devices", "devices", 0},
                               {"mean_ms", "mean ms", 1},
                               {"p95_ms", "p95 ms", 1},
                               {"tokens_per_second", "tokens/s", 0},
                               {"mfu", "MFU", 4},
                               {"bubble_share", "bubble share", 4},
                               {"device_hours_per_billion_tokens", "device-h/B tokens", 1}}) {
    table.columns.push_back(column);
  }
  Json messages = Json::array();
  std::set<std::string> reasons;
  for (const ResultRun& run : results.runs) {
    std::vector<Cell> row;
    for (const Json& value : run.axis_values) row.push_back(axis_cell(value));
    row.emplace_back(std::string(to_string(run.outcome)));
    row.emplace_back(std::int64_t{run.devices});
    if (run.outcome == RunOutcome::done) {
      row.insert(row.end(),
                 {run.summary.mean_seconds * kMilliseconds, run.summary.p95_seconds * kMilliseconds,
                  run.summary.tokens_per_second, run.summary.mfu, run.summary.bubble_share,
                  run.device_hours_per_billion_tokens()});
    } else {
      row.resize(table.columns.size());
      reasons.insert(run.message);
    }
    messages.push_back(run.message);
    table.rows.push_back(std::move(row));
  }
  table.notes.push_back(fmt::format("{} points simulated now, {} were finished before",
                                    context.computed, context.resumed));
  const std::vector<std::string> idle = axes_without_effect(results);
  for (const std::string& axis : idle) {
    table.notes.push_back(axis + " changes nothing here: each of its values gives the same");
  }
  constexpr std::size_t kShown = 5;
  for (const std::string& reason : reasons) {
    if (table.notes.size() > kShown) {
      table.notes.push_back("more reasons in --json");
      break;
    }
    table.notes.push_back(reason);
  }
  table.notes.insert(table.notes.end(), context.notes.begin(), context.notes.end());
  Report report;
  report.json["name"] = results.name;
  report.json["axes"] = results.axes;
  report.json["axes_without_effect"] = idle;
  report.json["points"] = to_json(table);
  for (std::size_t i = 0; i < results.runs.size(); ++i) {
    Json& point = report.json["points"][i];
    point["message"] = messages[i];
    point["profile"] = results.runs[i].profile;
    point["analytic"] = results.runs[i].analytic;
    point["provenance"] = results.runs[i].provenance;
  }
  report.json["computed"] = context.computed;
  report.json["resumed"] = context.resumed;
  report.tables = {std::move(table)};
  return report;
}

}  // namespace hydraulis
