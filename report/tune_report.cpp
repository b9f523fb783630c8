#include "report/tune_report.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace hydraulis {
namespace {

constexpr double kMilliseconds = 1e3;
constexpr double kGigabyte = 1e9;

std::string name_of(const OptimizerLayout& layout) {
  return fmt::format("dp{} tp{} pp{}", layout.dp, layout.tp, layout.pp);
}

Json texts(const std::vector<Strategy>& strategies) {
  Json list = Json::array();
  for (const Strategy& strategy : strategies) list.push_back(to_string(strategy));
  return list;
}

/// A cap on a micro-batch; missing when memory alone decides.
Cell cap_cell(std::int64_t max_tokens) {
  return max_tokens > 0 ? Cell(max_tokens) : Cell(std::string("memory"));
}

double held_out(const TunePoint& point) {
  return point.held_out.seconds.empty() ? std::numeric_limits<double>::quiet_NaN()
                                        : point.held_out.summary.tokens_per_second;
}

Table frontier_table(const TuneBudget& budget) {
  Table table;
  table.title =
      "Frontier (no other set has as much throughput and headroom with as few strategies)";
  table.columns = {{"strategies", "strategies"},
                   {"max_tokens", "micro-batch at most"},
                   {"tokens_per_second", "tokens/s held out", 0},
                   {"search_tokens_per_second", "tokens/s searched", 0},
                   {"memory_headroom_gb", "memory headroom GB", 2},
                   {"winner", "", 0, Align::left},
                   {"set", "pipelines (cp,tp,pp)", 0, Align::left}};
  for (const TunePoint& point : budget.frontier) {
    std::string set;
    for (const Strategy& strategy : point.plan.set.strategies) {
      set += (set.empty() ? "" : "; ") + to_string(strategy);
    }
    table.rows.push_back({static_cast<std::int64_t>(point.plan.set.strategies.size()),
                          cap_cell(point.plan.max_tokens), held_out(point),
                          point.search_tokens_per_second, point.headroom_bytes / kGigabyte,
                          std::string(point.winner ? "winner" : ""), set});
  }
  return table;
}

Table rivals_table(const TuneResult& result) {
  Table table;
  table.title = "The winner on held-out iterations";
  table.columns = {{"plan", "against", 0, Align::left},  {"mean_ms", "mean ms", 1},
                   {"tokens_per_second", "tokens/s", 0}, {"gain_percent", "winner's gain %", 2},
                   {"low_percent", "95 % from", 2},      {"high_percent", "to", 2},
                   {"faster_iterations", "faster on"}};
  const HeldOutRun& winner = result.budgets[result.best].winner().held_out;
  table.rows.push_back({std::string("(winner)"),
                        winner.summary.mean_seconds * kMilliseconds,
                        winner.summary.tokens_per_second,
                        {},
                        {},
                        {},
                        {}});
  for (const TuneRival& rival : result.rivals) {
    const RunSummary& summary = rival.held_out.summary;
    table.rows.push_back({rival.plan.name, summary.mean_seconds * kMilliseconds,
                          summary.tokens_per_second, 100 * rival.gain.mean, 100 * rival.gain.low,
                          100 * rival.gain.high, static_cast<std::int64_t>(rival.gain.faster)});
  }
  table.notes.push_back(
      fmt::format("gain: tokens/s over the same {} batches, interval from paired differences",
                  winner.seconds.size()));
  return table;
}

Table time_table(const TuneResult& result) {
  Table table;
  table.title = "Where the time of an iteration went (mean over devices)";
  table.columns = {{"plan", "plan", 0, Align::left},
                   {"compute_ms", "compute ms", 1},
                   {"communication_ms", "communication ms", 1},
                   {"bubble_ms", "bubble ms", 1},
                   {"waiting_ms", "waiting for pipelines ms", 1},
                   {"unused_ms", "unused devices ms", 1},
                   {"mean_ms", "together ms", 1}};
  const auto add = [&table](const std::string& name, const HeldOutRun& run) {
    const TimeShares& time = run.time;
    table.rows.push_back({name, time.compute * kMilliseconds, time.communication * kMilliseconds,
                          time.bubble * kMilliseconds, time.waiting * kMilliseconds,
                          time.unused * kMilliseconds, run.summary.mean_seconds * kMilliseconds});
  };
  add("winner", result.budgets[result.best].winner().held_out);
  for (const TuneRival& rival : result.rivals) add(rival.plan.name, rival.held_out);
  return table;
}

/// "computes 120 ms less, moves data 40 ms less": the winner beside the starting plan.
std::string why(const HeldOutRun& winner, const HeldOutRun& start) {
  struct Part {
    const char* name;
    double TimeShares::*member;
  };
  constexpr Part kParts[] = {{"computing", &TimeShares::compute},
                             {"exposed communication", &TimeShares::communication},
                             {"pipeline bubbles", &TimeShares::bubble},
                             {"waiting for slower pipelines", &TimeShares::waiting},
                             {"unused devices", &TimeShares::unused}};
  const double least = 1e-3 * start.summary.mean_seconds;
  std::string saved;
  std::string lost;
  for (const Part& part : kParts) {
    const double less = start.time.*part.member - winner.time.*part.member;
    if (std::abs(less) < least) continue;
    std::string& text = less > 0 ? saved : lost;
    text += fmt::format("{}{} {} ms", text.empty() ? "" : ", ", part.name,
                        grouped_number(std::abs(less) * kMilliseconds, 1));
  }
  std::string line = "against the starting plan, an iteration of the winner spends ";
  if (saved.empty() && lost.empty()) return line + "its time alike (within 0.1 %)";
  if (!saved.empty()) line += "less on " + saved;
  if (!lost.empty()) line += (saved.empty() ? "more on " : "; more on ") + lost;
  return line;
}

Table budgets_table(const TuneResult& result) {
  Table table;
  table.title = "Token budgets (another budget is another training recipe; compared by tokens/s)";
  table.columns = {{"tokens_per_batch", "tokens a batch"},
                   {"tokens_per_second", "tokens/s held out", 0},
                   {"search_tokens_per_second", "tokens/s searched", 0},
                   {"start_tokens_per_second", "starting plan", 0},
                   {"gain_percent", "gain %", 2},
                   {"strategies", "strategies"}};
  for (const TuneBudget& budget : result.budgets) {
    table.rows.push_back({static_cast<std::int64_t>(budget.tokens_per_batch),
                          budget.winner().held_out.summary.tokens_per_second,
                          budget.winner().search_tokens_per_second,
                          budget.start.summary.tokens_per_second, 100 * budget.gain.mean,
                          static_cast<std::int64_t>(budget.winner().plan.set.strategies.size())});
  }
  return table;
}

Table variants_table(const TuneResult& result) {
  Table table;
  table.title = "Other choices of execution, tried on the winner";
  table.columns = {{"choice", "choice", 0, Align::left},
                   {"tokens_per_second", "tokens/s", 0},
                   {"against_percent", "against the winner %", 2},
                   {"iterations", "iterations that fit"}};
  for (const TuneVariant& variant : result.variants) {
    const bool any = variant.iterations > 0;
    table.rows.push_back({variant.name, any ? Cell(variant.tokens_per_second) : Cell(),
                          any ? Cell(100 * variant.against_winner) : Cell(),
                          static_cast<std::int64_t>(variant.iterations)});
  }
  table.notes.push_back(
      "beside 1F1B in the order of micro-batches that the planner searches, on up to 64 of the "
      "iterations searched");
  const ScheduleChoice& schedule = result.budgets[result.best].winner().plan.schedule;
  if (schedule != ScheduleChoice{}) {
    table.notes.push_back(
        fmt::format("the plan runs {}: {:.2f} % more tokens/s than under 1F1B on the held-out "
                    "iterations ({:.2f} "
                    "to {:.2f})",
                    to_string(schedule), 100 * result.schedule_gain.mean,
                    100 * result.schedule_gain.low, 100 * result.schedule_gain.high));
  }
  return table;
}

Table rounds_table(const TuneResult& result) {
  Table table;
  table.title = "The search";
  table.columns = {
      {"tokens_per_batch", "tokens a batch"}, {"step", "step", 0, Align::left},
      {"candidates", "candidates"},           {"kept", "kept"},
      {"iterations", "iterations"},           {"tokens_per_second", "best tokens/s", 0}};
  for (const TuneBudget& budget : result.budgets) {
    for (const TuneRound& round : budget.rounds) {
      const bool known = round.best_tokens_per_second > 0;
      table.rows.push_back({static_cast<std::int64_t>(budget.tokens_per_batch), round.what,
                            static_cast<std::int64_t>(round.candidates),
                            static_cast<std::int64_t>(round.kept),
                            static_cast<std::int64_t>(round.iterations),
                            known ? Cell(round.best_tokens_per_second) : Cell()});
    }
  }
  return table;
}

Json winner_json(const TuneBudget& budget) {
  const TunePoint& winner = budget.winner();
  const RunSummary& summary = winner.held_out.summary;
  Json json;
  json["strategies"] = texts(winner.plan.set.strategies);
  json["optimizer_layout"] = {{"dp", winner.plan.set.optimizer.dp},
                              {"tp", winner.plan.set.optimizer.tp},
                              {"pp", winner.plan.set.optimizer.pp}};
  json["max_tokens"] = winner.plan.max_tokens;
  json["tokens_per_batch"] = budget.tokens_per_batch;
  json["search_tokens_per_second"] = winner.search_tokens_per_second;
  json["tokens_per_second"] = summary.tokens_per_second;
  json["mean_ms"] = summary.mean_seconds * kMilliseconds;
  json["p95_ms"] = summary.p95_seconds * kMilliseconds;
  json["mfu"] = summary.mfu;
  json["bubble_share"] = summary.bubble_share;
  json["memory_headroom_gb"] = winner.headroom_bytes / kGigabyte;
  json["schedule"] = to_string(winner.plan.schedule);
  return json;
}

void gain_json(Json& json, const PairedGain& gain) {
  json["gain"] = gain.mean;
  json["gain_low"] = gain.low;
  json["gain_high"] = gain.high;
}

}  // namespace

Report tune_report(const TuneResult& result, const TuneContext& context) {
  const TuneBudget& best = result.budgets[result.best];
  Report report;
  Json& json = report.json;
  json["winner"] = winner_json(best);

  Table frontier = frontier_table(best);
  json["frontier"] = to_json(frontier);
  for (std::size_t i = 0; i < best.frontier.size(); ++i) {
    json["frontier"][i]["max_tokens"] = best.frontier[i].plan.max_tokens;
    json["frontier"][i]["winner"] = best.frontier[i].winner;
    json["frontier"][i]["set"] = texts(best.frontier[i].plan.set.strategies);
  }
  frontier.notes.push_back("optimizer layout: " + name_of(best.winner().plan.set.optimizer));

  json["against"] = Json::array();
  for (const TuneRival& rival : result.rivals) {
    Json entry;
    entry["plan"] = rival.plan.name;
    entry["mean_ms"] = rival.held_out.summary.mean_seconds * kMilliseconds;
    entry["tokens_per_second"] = rival.held_out.summary.tokens_per_second;
    gain_json(entry, rival.gain);
    entry["faster_iterations"] = rival.gain.faster;
    json["against"].push_back(std::move(entry));
  }
  Table rivals = rivals_table(result);

  Table time = time_table(result);
  json["time"] = to_json(time);
  time.notes.push_back(why(best.winner().held_out, result.rivals.front().held_out));

  json["budgets"] = Json::array();
  for (const TuneBudget& budget : result.budgets) {
    Json entry;
    entry["tokens_per_batch"] = budget.tokens_per_batch;
    entry["search_tokens_per_second"] = budget.winner().search_tokens_per_second;
    entry["tokens_per_second"] = budget.winner().held_out.summary.tokens_per_second;
    entry["start_tokens_per_second"] = budget.start.summary.tokens_per_second;
    gain_json(entry, budget.gain);
    entry["strategies"] = texts(budget.winner().plan.set.strategies);
    json["budgets"].push_back(std::move(entry));
  }
  json["tried"] = Json::array();
  for (const TuneVariant& variant : result.variants) {
    const bool any = variant.iterations > 0;
    json["tried"].push_back({{"choice", variant.name},
                             {"schedule", to_string(variant.schedule)},
                             {"may_win", variant.may_win},
                             {"tokens_per_second", any ? Json(variant.tokens_per_second) : Json()},
                             {"against_winner", any ? Json(variant.against_winner) : Json()},
                             {"iterations", variant.iterations}});
  }
  Json& schedule = json["schedule"];
  schedule["name"] = to_string(best.winner().plan.schedule);
  gain_json(schedule, result.schedule_gain);
  Table rounds = rounds_table(result);
  json["rounds"] = to_json(rounds);

  std::uint64_t simulated = 0;
  for (const TuneBudget& budget : result.budgets) simulated += budget.simulated;
  Json search;
  search["iterations"] = context.options.search_iterations;
  search["seed"] = context.seed;
  search["held_out_iterations"] = context.options.held_out_iterations;
  search["held_out_seed"] = context.options.held_out_seed;
  search["optimizer_layouts"] = Json::array();
  for (const OptimizerLayout& layout : result.layouts) {
    search["optimizer_layouts"].push_back(name_of(layout));
  }
  search["max_tokens"] = result.caps;
  search["simulated_iterations"] = simulated;
  if (!context.reproducible) search["wall_seconds"] = context.wall_seconds;
  json["search"] = std::move(search);
  json["notes"] = context.notes.all();
  json["provenance"] = sources_json(context.notes.sources);

  report.tables.push_back(std::move(frontier));
  report.tables.push_back(std::move(rivals));
  report.tables.push_back(std::move(time));
  if (result.budgets.size() > 1) report.tables.push_back(budgets_table(result));
  report.tables.push_back(variants_table(result));
  rounds.notes.push_back(fmt::format(
      "{} iterations planned and simulated{}; searched with seed {}, held out with seed {} "
      "(`simulate --seed {}` gives the held-out numbers again)",
      simulated, context.reproducible ? "" : fmt::format(" in {:.1f} s", context.wall_seconds),
      context.seed, context.options.held_out_seed, context.options.held_out_seed));
  for (const std::string& line : context.notes.shown()) rounds.notes.push_back(line);
  report.tables.push_back(std::move(rounds));
  return report;
}

}  // namespace hydraulis
