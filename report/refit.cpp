#include "report/refit.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace hydraulis {
namespace {

/// A stage's part of an iteration, in seconds since the iteration began.
struct StageTimes {
  double gathered = 0;       ///< end of its last parameter gather
  double last_backward = 0;  ///< end
  double reduced = 0;        ///< end of its last reduction
  double norm = 0;           ///< duration
};

/// Sums over iterations.
struct Sums {
  std::map<std::pair<CorrectedTime, std::string>, double> compute;  ///< by scheme
  double gather = 0;
  double reduce = 0;
  double norm = 0;
  double step = 0;
};

double seconds(const TimelineEvent& event) { return event.end_seconds - event.start_seconds; }

void add_stages(const std::map<int, StageTimes>& stages, Sums& sums) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  StageTimes least{kNever, 0, kNever, kNever};
  for (const auto& [stage, times] : stages) {
    least.gathered = std::min(least.gathered, times.gathered);
    least.reduced = std::min(least.reduced, std::max(0.0, times.reduced - times.last_backward));
    least.norm = std::min(least.norm, times.norm);
  }
  sums.gather += least.gathered;
  sums.reduce += least.reduced;
  sums.norm += least.norm;
}

Sums sums_of(const Timeline& timeline, const std::set<int>& iterations) {
  Sums sums;
  std::map<int, double> begins;
  for (const TimelineEvent& event : timeline.events) {
    if (!iterations.contains(event.iteration)) continue;
    const auto found = begins.emplace(event.iteration, event.start_seconds).first;
    found->second = std::min(found->second, event.start_seconds);
  }
  std::map<int, std::map<int, StageTimes>> stages;  // by iteration
  for (const TimelineEvent& event : timeline.events) {
    if (!iterations.contains(event.iteration)) continue;
    StageTimes& stage = stages[event.iteration][event.stage];
    const double end = event.end_seconds - begins.at(event.iteration);
    const std::string& scheme = timeline.tracks.at(static_cast<std::size_t>(event.stage)).scheme;
    switch (event.op) {
      case Op::forward:
        sums.compute[{CorrectedTime::forward, scheme}] += seconds(event);
        break;
      case Op::backward:
        sums.compute[{CorrectedTime::backward, scheme}] += seconds(event);
        stage.last_backward = std::max(stage.last_backward, end);
        break;
      case Op::gather_parameters:
        stage.gathered = std::max(stage.gathered, end);
        break;
      case Op::reduce_gradients:
        stage.reduced = std::max(stage.reduced, end);
        break;
      case Op::gradient_norm:
        stage.norm += seconds(event);
        break;
      case Op::optimizer_step:
        sums.step += seconds(event);
        break;
      default:
        break;
    }
  }
  for (const auto& [iteration, of_iteration] : stages) add_stages(of_iteration, sums);
  return sums;
}

}  // namespace

std::vector<Correction> corrections(const Timeline& predicted, const Timeline& measured,
                                    const DiffOptions& options) {
  std::set<int> in_measured;
  std::set<int> in_predicted;
  for (const IterationDifference& each : diff(predicted, measured, options).iterations) {
    in_measured.insert(each.iteration);
    in_predicted.insert(each.iteration - options.offset);
  }
  const Sums expected = sums_of(predicted, in_predicted);
  const Sums found = sums_of(measured, in_measured);
  std::vector<Correction> result;
  const auto add = [&](CorrectedTime time, const std::string& scheme, double from, double to) {
    if (from > 0 && to > 0) result.push_back({time, scheme, to / from});
  };
  std::map<CorrectedTime, std::pair<double, double>> whole;
  for (const auto& [key, from] : expected.compute) {
    const auto to = found.compute.find(key);
    if (to == found.compute.end()) continue;
    add(key.first, key.second, from, to->second);
    whole[key.first].first += from;
    whole[key.first].second += to->second;
  }
  for (const auto& [time, sums] : whole) add(time, "", sums.first, sums.second);
  add(CorrectedTime::gather_parameters, "", expected.gather, found.gather);
  add(CorrectedTime::reduce_gradients, "", expected.reduce, found.reduce);
  add(CorrectedTime::gradient_norm, "", expected.norm, found.norm);
  add(CorrectedTime::optimizer_step, "", expected.step, found.step);
  return result;
}

void add_corrections(OperatorProfile& profile, const std::vector<Correction>& found) {
  for (const Correction& correction : found) {
    const auto known = std::ranges::find_if(profile.corrections, [&](const Correction& other) {
      return other.time == correction.time && other.scheme == correction.scheme;
    });
    if (known == profile.corrections.end()) {
      profile.corrections.push_back(correction);
    } else {
      known->factor *= correction.factor;
    }
  }
}

void add_refit(Report& report, const std::vector<Correction>& found) {
  Table table;
  table.title = "Corrections: what times are multiplied by";
  table.columns = {{"time", "time", 0, Align::left},
                   {"scheme", "scheme", 0, Align::left},
                   {"factor", "measured / predicted", 4}};
  for (const Correction& correction : found) {
    table.rows.push_back({to_string(correction.time), correction.scheme, correction.factor});
  }
  report.json["refit"] = to_json(table);
  report.tables.push_back(std::move(table));
}

}  // namespace hydraulis
