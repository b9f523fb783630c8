#include "report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "report/losses_report.h"

namespace hydraulis {
namespace {

constexpr double kMilliseconds = 1e3;
constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
constexpr std::size_t kIterationsPerLine = 50;
constexpr std::size_t kIterationsShown = 1000;

std::int64_t whole(std::uint64_t value) { return static_cast<std::int64_t>(value); }

std::string strategy_name(const RunContext& context, int strategy) {
  const auto index = static_cast<std::size_t>(strategy);
  return index < context.strategies.size() ? to_string(context.strategies[index]) : "";
}

LongTable iteration_table(const RunResult& run) {
  LongTable table;
  table.key = "iterations";
  table.columns = {
      {"iteration", "iteration"}, {"time_ms", "time ms", 3},           {"strategy", "strategy"},
      {"tokens", "tokens"},       {"bubble_share", "bubble share", 4}, {"mfu", "MFU", 4}};
  table.rows = run.iterations.size();
  table.row = [&run](std::size_t i) -> std::vector<Cell> {
    const IterationResult& iteration = run.iterations[i];
    return {static_cast<std::int64_t>(i),     iteration.time_seconds * kMilliseconds,
            std::int64_t{iteration.strategy}, whole(iteration.tokens),
            iteration.bubble_share,           iteration.mfu};
  };
  return table;
}

Table summary_table(const RunResult& run, const RunContext& context) {
  const RunSummary& summary = run.summary;
  Table table;
  table.columns = {{"figure", "figure", 0, Align::left},
                   {"value", "value", 3},
                   {"unit", "unit", 0, Align::left}};
  const auto add = [&](const char* figure, Cell value, const char* unit) {
    table.rows.push_back({std::string(figure), std::move(value), std::string(unit)});
  };
  add("iterations", whole(run.iterations.size()), "");
  add("mean iteration", summary.mean_seconds * kMilliseconds, "ms");
  add("p50 iteration", summary.p50_seconds * kMilliseconds, "ms");
  add("p95 iteration", summary.p95_seconds * kMilliseconds, "ms");
  add("p99 iteration", summary.p99_seconds * kMilliseconds, "ms");
  add("throughput", summary.tokens_per_second, "tokens/s");
  add("MFU", 100 * summary.mfu, "%");
  add("idle device time (bubble share)", 100 * summary.bubble_share, "%");
  add("exposed communication", summary.exposed_communication_seconds * kMilliseconds,
      "ms an iteration");
  for (const LossShare& loss : loss_shares(summary.losses)) {
    add(loss.name, 100 * loss.share, "% of device time");
  }
  if (context.counts_out_of_memory) {
    add("iterations out of memory", 100 * summary.out_of_memory_share, "%");
  }
  if (summary.memory_bytes > 0) {
    add("memory high-water", summary.memory_bytes / kGibibyte, "GiB a device");
  }
  const TokenCost cost = cost_of_a_billion_tokens(summary, context.rates);
  add("device-hours", cost.device_hours, "a billion tokens");
  if (cost.kilowatt_hours > 0) {
    add("energy (devices at full draw)", cost.kilowatt_hours, "kWh a billion tokens");
  }
  if (cost.price > 0) add("price", cost.price, "a billion tokens");
  add("events", whole(summary.events), "");
  if (!context.reproducible) add("simulated in", summary.wall_seconds, "s");
  table.notes = context.notes.shown();
  const std::string unused = unused_devices_note(context.strategies, context.devices);
  if (!unused.empty()) table.notes.push_back(unused);
  return table;
}

/// How often each strategy was chosen, and the sequence of choices.
Table strategy_table(const RunResult& run, const RunContext& context) {
  std::map<int, std::int64_t> chosen;
  for (const auto& iteration : run.iterations) ++chosen[iteration.strategy];
  Table table{"Strategies chosen",
              {{"strategy", "index"},
               {"iterations", "iterations"},
               {"pipelines", "pipelines (cp,tp,pp)", 0, Align::left}},
              {},
              {}};
  for (const auto& [strategy, count] : chosen) {
    table.rows.push_back({std::int64_t{strategy}, count, strategy_name(context, strategy)});
  }
  if (chosen.size() < 2) return table;
  table.notes.push_back("over the iterations, in order:");
  const std::size_t shown = std::min(run.iterations.size(), kIterationsShown);
  for (std::size_t begin = 0; begin < shown; begin += kIterationsPerLine) {
    const std::size_t end = std::min(begin + kIterationsPerLine, shown);
    std::string line = fmt::format("{:>6}:", begin);
    for (std::size_t i = begin; i < end; ++i) {
      line += fmt::format(" {}", run.iterations[i].strategy);
    }
    table.notes.push_back(line);
  }
  if (shown < run.iterations.size()) {
    table.notes.push_back(fmt::format("and {} more iterations (--csv or --json lists them all)",
                                      run.iterations.size() - shown));
  }
  return table;
}

Table path_table(const RunContext& context) {
  Table table{fmt::format("What iteration {} waits for, one resource after the other",
                          context.critical_iteration),
              {{"resource", "resource", 0, Align::left},
               {"path_ms", "ms on the longest path", 3},
               {"gain_twice_as_fast", "saved if twice as fast, %", 2},
               {"gain_if_free", "if it took no time, %", 2}},
              {},
              {}};
  for (const ResourceShare& share : context.critical_path) {
    table.rows.push_back({std::string(to_string(share.resource)),
                          share.path_seconds * kMilliseconds, 100 * share.gain_twice_as_fast,
                          100 * share.gain_if_free});
  }
  return table;
}

Json path_json(const RunContext& context) {
  Json json = {{"iteration", context.critical_iteration}, {"resources", Json::array()}};
  for (const ResourceShare& share : context.critical_path) {
    json["resources"].push_back({{"resource", to_string(share.resource)},
                                 {"path_ms", share.path_seconds * kMilliseconds},
                                 {"gain_twice_as_fast", share.gain_twice_as_fast},
                                 {"gain_if_free", share.gain_if_free}});
  }
  return json;
}

Json peak_json(const MemoryPeak& peak) {
  const StageMemory& memory = peak.point.memory;
  return {{"stage", peak.stage},
          {"time_ms", peak.point.seconds * kMilliseconds},
          {"bytes",
           {{"optimizer", memory.optimizer},
            {"parameters", memory.parameters},
            {"gradients", memory.gradients},
            {"activations", memory.activations},
            {"logits", memory.logits},
            {"buffers", memory.buffers},
            {"constant", memory.constant}}},
          {"total_bytes", memory.total()}};
}

Json run_json(const RunResult& run, const RunContext& context) {
  const RunSummary& summary = run.summary;
  Json json = Json::object();
  json["mean_ms"] = summary.mean_seconds * kMilliseconds;
  json["p50_ms"] = summary.p50_seconds * kMilliseconds;
  json["p95_ms"] = summary.p95_seconds * kMilliseconds;
  json["p99_ms"] = summary.p99_seconds * kMilliseconds;
  json["tokens_per_second"] = summary.tokens_per_second;
  json["mfu"] = summary.mfu;
  json["bubble_share"] = summary.bubble_share;
  json["exposed_communication_ms"] = summary.exposed_communication_seconds * kMilliseconds;
  json["losses"] = losses_json(summary.losses);
  json["out_of_memory_share"] = nullptr;
  if (context.counts_out_of_memory) json["out_of_memory_share"] = summary.out_of_memory_share;
  if (!context.critical_path.empty()) json["critical_path"] = path_json(context);
  add_token_cost(json, summary, context.rates);
  json["memory_peak"] = nullptr;
  if (context.memory_peak) json["memory_peak"] = peak_json(*context.memory_peak);
  json["memory_bytes"] = nullptr;
  if (summary.memory_bytes > 0) json["memory_bytes"] = summary.memory_bytes;
  json["events"] = summary.events;
  if (!context.reproducible) json["wall_seconds"] = summary.wall_seconds;
  Json strategies = Json::array();
  for (const auto& strategy : context.strategies) strategies.push_back(to_string(strategy));
  json["strategies"] = std::move(strategies);
  json["unused_devices"] = unused_devices(context.strategies, context.devices);
  json["notes"] = context.notes.all();
  json["provenance"] = sources_json(context.notes.sources);
  return json;
}

}  // namespace

Report run_report(const RunResult& run, const RunContext& context) {
  std::vector<Table> tables{summary_table(run, context), strategy_table(run, context)};
  if (!context.critical_path.empty()) tables.push_back(path_table(context));
  return {run_json(run, context), std::move(tables), iteration_table(run)};
}

}  // namespace hydraulis
