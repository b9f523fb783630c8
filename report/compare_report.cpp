#include "report/compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "report/losses_report.h"
#include "sim/results.h"

namespace hydraulis {
namespace {

constexpr double kMilliseconds = 1e3;
constexpr double kTrillion = 1e12;
constexpr double kSecondsPerDay = 86400;
constexpr double kHoursPerDay = 24;

/// A ratio of times or rates; missing where there is nothing to divide by.
double ratio(double numerator, double denominator) {
  return denominator > 0 ? numerator / denominator : std::numeric_limits<double>::quiet_NaN();
}

/// How much of each result hangs on the network that is assumed.
std::string network_share(const std::vector<PolicyRun>& runs) {
  std::string text = "of the mean, exposed communication (depends on the network assumed):";
  const char* separator = "";
  for (const PolicyRun& run : runs) {
    if (!run.infeasible.empty()) continue;
    const RunSummary& summary = run.summary;
    text += fmt::format(
        "{} {} {} %", separator, run.name,
        grouped_number(100 * ratio(summary.exposed_communication_seconds, summary.mean_seconds),
                       1));
    separator = ",";
  }
  return text;
}

/// "hydraulis: of the device time 80.1 % computing tokens, 2.0 % …".
std::string loss_note(const PolicyRun& run) {
  std::string text = run.name + ": of the device time";
  const char* separator = " ";
  for (const LossShare& loss : loss_shares(run.summary.losses)) {
    text += fmt::format("{}{} % {}", separator, grouped_number(100 * loss.share, 1), loss.name);
    separator = ", ";
  }
  return text;
}

}  // namespace

Report compare_report(const std::vector<PolicyRun>& runs, const CompareContext& context) {
  const auto feasible = [](const PolicyRun& run) { return run.infeasible.empty(); };
  const auto reference = std::ranges::find_if(runs, feasible);
  const bool all_feasible = std::ranges::all_of(runs, feasible);
  Table table;
  table.columns = {{"name", "policy", 0, Align::left},
                   {"mean_ms", "mean ms", 1},
                   {"p95_ms", "p95 ms", 1},
                   {"tokens_per_second", "tokens/s", 0},
                   {"mfu", "MFU", 4},
                   {"bubble_share", "bubble share", 4},
                   {"speedup", "speedup", 3},
                   {"days_per_trillion_tokens", "days/T tokens", 1},
                   {"device_hours_per_trillion_tokens", "device-h/T tokens", 0}};
  for (const auto& run : runs) {
    const RunSummary& summary = run.summary;
    std::vector<Cell> row{run.name};
    if (feasible(run)) {
      const double days = ratio(kTrillion, summary.tokens_per_second) / kSecondsPerDay;
      row.insert(row.end(),
                 {summary.mean_seconds * kMilliseconds, summary.p95_seconds * kMilliseconds,
                  summary.tokens_per_second, summary.mfu, summary.bubble_share,
                  ratio(reference->summary.mean_seconds, summary.mean_seconds), days,
                  days * kHoursPerDay * context.devices});
    }
    row.resize(table.columns.size());
    table.rows.push_back(std::move(row));
    if (!run.remark.empty()) table.notes.push_back(fmt::format("{}: {}", run.name, run.remark));
    if (!feasible(run)) {
      table.notes.push_back(fmt::format("{} is infeasible: {}", run.name, run.infeasible));
    }
  }
  if (!all_feasible) {
    table.columns.push_back({"outcome", "outcome", 0, Align::left});
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const RunOutcome outcome = feasible(runs[i]) ? RunOutcome::done : RunOutcome::infeasible;
      table.rows[i].emplace_back(std::string(to_string(outcome)));
    }
    if (reference != runs.end() && reference != runs.begin()) {
      table.notes.push_back(fmt::format(
          "speedups are against {}, the first policy that is feasible", reference->name));
    }
  }
  for (const auto& run : runs) {
    const std::string unused = unused_devices_note(run.strategies, context.devices);
    if (!unused.empty()) table.notes.push_back(fmt::format("{}: {}", run.name, unused));
  }
  for (const auto& run : runs) {
    if (feasible(run)) table.notes.push_back(loss_note(run));
  }
  if (reference != runs.end()) table.notes.push_back(network_share(runs));
  for (const std::string& note : context.notes.shown()) table.notes.push_back(note);

  Json json = Json::object();
  json["policies"] = to_json(table);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Json& policy = json["policies"][i];
    if (!feasible(runs[i])) {
      policy["infeasible"] = runs[i].infeasible;
      continue;
    }
    const std::vector<int> unused = unused_devices(runs[i].strategies, context.devices);
    policy["exposed_communication_ms"] =
        runs[i].summary.exposed_communication_seconds * kMilliseconds;
    policy["p50_ms"] = runs[i].summary.p50_seconds * kMilliseconds;
    policy["p99_ms"] = runs[i].summary.p99_seconds * kMilliseconds;
    add_token_cost(policy, runs[i].summary, context.rates);
    policy["losses"] = losses_json(runs[i].summary.losses);
    policy["unused_devices"] = unused.empty() ? 0 : *std::max_element(unused.begin(), unused.end());
    policy["remark"] = runs[i].remark;
    if (!context.reproducible) {
      policy["wall_seconds"] = runs[i].summary.wall_seconds;
      policy["planning_ms"] = runs[i].planning_seconds * kMilliseconds;
      policy["most_planning_ms"] = runs[i].most_planning_seconds * kMilliseconds;
    }
  }
  if (reference != runs.end()) json["speedup_against"] = reference->name;
  json["devices"] = context.devices;
  json["notes"] = context.notes.all();
  json["provenance"] = sources_json(context.notes.sources);
  return {std::move(json), {std::move(table)}};
}

}  // namespace hydraulis
