#include "report/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace hydraulis {
namespace {

constexpr double kMillisecondsPerSecond = 1e3;
constexpr double kNanosecondsPerSecond = 1e9;
constexpr double kMicrosecondsPerSecond = 1e6;

/// Raises a column's decimals until its smallest number, zero apart, shows two digits: small models
/// have times far below the units that suit large ones.
void show_digits(Table& table, std::size_t column) {
  constexpr int kMostDecimals = 12;
  double smallest = std::numeric_limits<double>::infinity();
  for (const auto& row : table.rows) {
    const double value = std::abs(std::get<double>(row[column]));
    if (value > 0) smallest = std::min(smallest, value);
  }
  if (!std::isfinite(smallest)) return;
  const int needed = 1 - static_cast<int>(std::floor(std::log10(smallest)));
  int& decimals = table.columns[column].decimals;
  decimals = std::clamp(needed, decimals, std::max(decimals, kMostDecimals));
}

}  // namespace

Report plan_report(const PlanResult& result, const Notes& notes, bool reproducible) {
  const Plan& plan = result.plan;
  Report report;
  report.json = to_json(plan, reproducible);
  report.json["unused_devices"] =
      unused_devices(plan.set.strategies, result.model.cluster.devices());
  report.json["notes"] = notes.all();
  report.json["provenance"] = sources_json(notes.sources);
  report.json["unused_schemes"] = result.unused_schemes;
  Table schemes;
  schemes.title = "Schemes";
  schemes.columns = {{"scheme", "(cp,tp,pp)", 0, Align::left},
                     {"devices", "devices"},
                     {"max_tokens", "longest micro-batch tokens"},
                     {"ns_per_squared_token", "a ns/token^2", 3},
                     {"us_per_token", "b us/token", 2},
                     {"ms_per_micro_batch", "c ms/micro-batch", 2}};
  constexpr std::size_t kFirstCost = 3;
  for (const SchemeOption& option : plan.schemes) {
    if (option.max_tokens <= 0) continue;
    schemes.rows.push_back({to_string(option.scheme), std::int64_t{option.scheme.devices()},
                            option.max_tokens, option.cost.a * kNanosecondsPerSecond,
                            option.cost.b * kMicrosecondsPerSecond,
                            option.cost.c * kMillisecondsPerSecond});
  }
  for (std::size_t c = kFirstCost; c < schemes.columns.size(); ++c) {
    show_digits(schemes, c);
  }
  Table strategies;
  strategies.title = "Strategies";
  strategies.columns = {{"strategy", "no."},
                        {"pipelines", "pipelines (cp,tp,pp)", 0, Align::left},
                        {"longest", "longest sequence tokens"}};
  for (std::size_t i = 0; i < plan.set.strategies.size(); ++i) {
    std::int64_t longest = 0;
    for (const Scheme& scheme : plan.set.strategies[i]) {
      for (const SchemeOption& option : plan.schemes) {
        if (option.scheme == scheme) longest = std::max(longest, option.max_tokens);
      }
    }
    strategies.rows.push_back(
        {static_cast<std::int64_t>(i), to_string(plan.set.strategies[i]), longest});
  }
  const OptimizerLayout& layout = plan.set.optimizer;
  strategies.notes.push_back(
      fmt::format("optimizer layout: dp{} tp{} pp{}", layout.dp, layout.tp, layout.pp));
  if (!reproducible && plan.proposal_seconds > 0) {
    strategies.notes.push_back(fmt::format("proposed in {:.3f} s", plan.proposal_seconds));
  }
  const std::string unused =
      unused_devices_note(plan.set.strategies, result.model.cluster.devices());
  if (!unused.empty()) strategies.notes.push_back(unused);
  for (const std::string& note : notes.shown()) strategies.notes.push_back(note);
  // Analytic profiles know many schemes; people see a few, --json has them all.
  constexpr std::size_t kShown = 6;
  for (std::size_t i = 0; i < std::min(kShown, result.unused_schemes.size()); ++i) {
    strategies.notes.push_back(result.unused_schemes[i]);
  }
  if (result.unused_schemes.size() > kShown) {
    strategies.notes.push_back(fmt::format("and {} more schemes not used (--json lists them)",
                                           result.unused_schemes.size() - kShown));
  }
  report.tables = {schemes, strategies};
  return report;
}

Report assign_report(const BatchPlan& plan, const AssignContext& context) {
  Report report;
  Table table;
  table.columns = {{"pipeline", "pipeline"},      {"scheme", "(cp,tp,pp)", 0, Align::left},
                   {"time_ms", "time ms", 2},     {"micro_batches", "micro-batches"},
                   {"sequences", "sequences"},    {"tokens", "tokens"},
                   {"padding", "padding tokens"}, {"longest", "longest sequence tokens"}};
  Json pipelines = Json::array();
  std::int64_t all_sequences = 0;
  std::int64_t all_tokens = 0;
  for (std::size_t k = 0; k < plan.pipelines.size(); ++k) {
    const PipelinePlan& pipeline = plan.pipelines[k];
    Json micro_batches = Json::array();
    Json ids = Json::array();
    Json paddings = Json::array();
    std::int64_t sequences = 0;
    std::int64_t tokens = 0;
    std::int64_t padding = 0;
    std::int64_t longest = 0;
    for (const MicroBatch& micro_batch : pipeline.micro_batches) {
      micro_batches.push_back(micro_batch.lengths);
      ids.push_back(micro_batch.sequence_ids);
      paddings.push_back(micro_batch.padding);
      sequences += static_cast<std::int64_t>(micro_batch.lengths.size());
      tokens += static_cast<std::int64_t>(micro_batch.tokens());
      padding += static_cast<std::int64_t>(micro_batch.padding);
      for (const std::uint32_t length : micro_batch.lengths) {
        longest = std::max(longest, std::int64_t{length});
      }
    }
    all_sequences += sequences;
    all_tokens += tokens;
    Json entry;
    entry["cp"] = pipeline.scheme.cp;
    entry["tp"] = pipeline.scheme.tp;
    entry["pp"] = pipeline.scheme.pp;
    entry["time_ms"] = pipeline.time_seconds * kMillisecondsPerSecond;
    entry["micro_batches"] = std::move(micro_batches);
    entry["sequence_ids"] = std::move(ids);
    entry["padding"] = std::move(paddings);
    pipelines.push_back(std::move(entry));
    table.rows.push_back({static_cast<std::int64_t>(k), to_string(pipeline.scheme),
                          pipeline.time_seconds * kMillisecondsPerSecond,
                          static_cast<std::int64_t>(pipeline.micro_batches.size()), sequences,
                          tokens, padding, longest});
  }
  report.json["strategy"] = plan.strategy;
  report.json["strategy_text"] =
      to_string(context.strategies[static_cast<std::size_t>(plan.strategy)]);
  report.json["pipelines"] = std::move(pipelines);
  report.json["makespan_ms"] = plan.makespan_seconds * kMillisecondsPerSecond;
  report.json["lower_bound_ms"] = plan.lower_bound_seconds * kMillisecondsPerSecond;
  report.json["set_lower_bound_ms"] = plan.set_lower_bound_seconds * kMillisecondsPerSecond;
  if (!context.reproducible) {
    report.json["planning_ms"] = plan.planning_seconds * kMillisecondsPerSecond;
  }
  report.json["sequences"] = all_sequences;
  report.json["tokens"] = all_tokens;
  report.json["empty_sequences"] = context.empty_sequences;
  report.json["over_context"] = {{"sequences", context.over_context},
                                 {"dropped_sequences", context.dropped_sequences},
                                 {"tokens_removed", context.tokens_removed}};
  const Strategy& chosen = context.strategies[static_cast<std::size_t>(plan.strategy)];
  const int unused = unused_devices({chosen}, context.devices).front();
  report.json["unused_devices"] = unused;
  report.json["notes"] = context.notes.all();
  report.json["provenance"] = sources_json(context.notes.sources);
  const double gap = plan.lower_bound_seconds > 0
                         ? 100 * (plan.makespan_seconds / plan.lower_bound_seconds - 1)
                         : 0.0;
  table.title = fmt::format("Strategy {}: {}", plan.strategy,
                            to_string(context.strategies[static_cast<std::size_t>(plan.strategy)]));
  table.notes.push_back(
      fmt::format("makespan {:.3f} ms; lower bound {:.3f} ms on this strategy (gap {:.2f} %), "
                  "{:.3f} ms on the set",
                  plan.makespan_seconds * kMillisecondsPerSecond,
                  plan.lower_bound_seconds * kMillisecondsPerSecond, gap,
                  plan.set_lower_bound_seconds * kMillisecondsPerSecond));
  if (!context.reproducible) {
    table.notes.push_back(
        fmt::format("planned in {:.2f} ms", plan.planning_seconds * kMillisecondsPerSecond));
  }
  table.notes.push_back(fmt::format("{} sequences, {} tokens", all_sequences, all_tokens));
  table.notes.push_back(fmt::format(
      "{} empty sequences left out; {} over the context, of which {} dropped, {} tokens removed",
      context.empty_sequences, context.over_context, context.dropped_sequences,
      context.tokens_removed));
  if (unused > 0) {
    table.notes.push_back(
        fmt::format("this strategy leaves {} of {} devices unused", unused, context.devices));
  }
  for (const std::string& note : context.notes.shown()) table.notes.push_back(note);
  report.tables = {table};
  return report;
}

}  // namespace hydraulis
