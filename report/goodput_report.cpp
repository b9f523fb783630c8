#include "report/goodput_report.h"

#include <fmt/format.h>

#include <utility>

namespace hydraulis {
namespace {

constexpr double kMilliseconds = 1e3;
constexpr double kHour = 3600;
constexpr double kGigabyte = 1e9;

struct Part {
  const char* key;
  const char* name;
  double WallTime::*time;
};
constexpr Part kParts[] = {
    {"useful", "useful", &WallTime::useful},
    {"checkpoint", "standing still for checkpoints", &WallTime::checkpoint},
    {"lost", "work lost to failures", &WallTime::lost},
    {"recovery", "detection, restart, loading", &WallTime::recovery},
    {"degraded", "slower on fewer nodes", &WallTime::degraded},
    {"waiting", "waiting for repair", &WallTime::waiting},
};

Table wall_table(const TrainingJob& job, const Goodput& result) {
  Table table{"Where the time goes",
              {{"part", "part", 0, Align::left},
               {"share_percent", "share %", 3},
               {"half_width_percent", "± %", 3},
               {"hours", "hours", 2}},
              {},
              {"± is the half-width of the 95 % confidence interval of the mean"}};
  for (const Part& part : kParts) {
    const double seconds = result.time.*part.time;
    table.rows.push_back({std::string(part.name), 100 * seconds / job.horizon_seconds,
                          100 * result.half_widths.*part.time / job.horizon_seconds,
                          seconds / kHour});
  }
  return table;
}

Table summary_table(const TrainingJob& job, const Goodput& result, const GoodputContext& context) {
  Table table;
  table.title =
      fmt::format("{:g} days on {} nodes, {} times", context.days, job.nodes, context.replications);
  table.columns = {{"figure", "figure", 0, Align::left},
                   {"value", "value", 3},
                   {"half_width", "±", 3},
                   {"unit", "unit", 0, Align::left}};
  const auto add = [&](const char* figure, Cell value, Cell half_width, const char* unit) {
    table.rows.push_back(
        {std::string(figure), std::move(value), std::move(half_width), std::string(unit)});
  };
  add("goodput", 100 * result.goodput.mean, 100 * result.goodput.half_width,
      "% of the fault-free rate");
  add("worst of the replications", 100 * result.worst, {}, "%");
  add("useful throughput", result.tokens_per_second.mean, result.tokens_per_second.half_width,
      "tokens/s");
  add("fault-free throughput", context.clusters.front().tokens_per_second, {}, "tokens/s");
  if (context.steady_tokens_per_second) {
    add("the same without jitter and stragglers", *context.steady_tokens_per_second, {},
        "tokens/s");
  }
  add("failures", result.failures.mean, result.failures.half_width, "a run");
  if (job.fails) add("time between failures", job_mtbf(job) / kHour, {}, "h");
  add("checkpoints", result.checkpoints.mean, result.checkpoints.half_width, "a run");
  if (job.interval_iterations > 0) {
    add("iterations between checkpoints", static_cast<std::int64_t>(job.interval_iterations), {},
        "");
  } else {
    add("training between checkpoints", job.interval_seconds, {},
        context.interval_given ? "s" : "s (found)");
  }
  add("a checkpoint", context.checkpoint_bytes / kGigabyte, {}, "GB");
  add("written in", job.write_seconds, {}, "s");
  add("training stands still for", checkpoint_stop(job), {}, "s");
  RunSummary summary;
  summary.tokens_per_second = result.tokens_per_second.mean;
  const TokenCost cost = cost_of_a_billion_tokens(summary, context.rates);
  add("device-hours", cost.device_hours, {}, "a billion useful tokens");
  if (cost.kilowatt_hours > 0) {
    add("energy (devices at full draw)", cost.kilowatt_hours, {}, "kWh a billion useful tokens");
  }
  if (cost.price > 0) add("price", cost.price, {}, "a billion useful tokens");
  table.notes = context.notes.shown();
  if (!context.reproducible) {
    table.notes.push_back(fmt::format("{:.3g} days simulated in {:.3g} s",
                                      context.days * context.replications, context.wall_seconds));
  }
  return table;
}

Table interval_table(const TrainingJob& job, const GoodputContext& context) {
  Table table{"Time between checkpoints",
              {{"interval", "interval", 0, Align::left},
               {"seconds", "s", 1},
               {"goodput_percent", "goodput %", 3},
               {"half_width_percent", "± %", 3}},
              {},
              {}};
  const double cost = checkpoint_stop(job);
  const double mtbf = job_mtbf(job);
  table.rows.push_back({std::string("Young's formula"), young_interval(cost, mtbf),
                        std::monostate(), std::monostate()});
  table.rows.push_back({std::string("Daly's formula"), daly_interval(cost, mtbf), std::monostate(),
                        std::monostate()});
  for (const IntervalTry& one : context.search->tries) {
    const bool best = one.interval_seconds == context.search->best_seconds;
    table.rows.push_back({std::string(best ? "simulated, the best" : "simulated"),
                          one.interval_seconds, 100 * one.goodput.mean,
                          100 * one.goodput.half_width});
  }
  return table;
}

Table cluster_table(const GoodputContext& context) {
  Table table{"Nodes that the job goes on with",
              {{"nodes", "nodes"},
               {"mean_ms", "mean iteration ms", 3},
               {"tokens_per_second", "tokens/s", 1}},
              {},
              {}};
  for (const ClusterRate& cluster : context.clusters) {
    table.rows.push_back({std::int64_t{cluster.nodes}, cluster.mean_seconds * kMilliseconds,
                          cluster.tokens_per_second});
  }
  return table;
}

Json intervals_json(const TrainingJob& job, const IntervalSearch& search) {
  const double cost = checkpoint_stop(job);
  Json json = {{"young_seconds", young_interval(cost, job_mtbf(job))},
               {"daly_seconds", daly_interval(cost, job_mtbf(job))},
               {"found_seconds", search.best_seconds},
               {"tries", Json::array()}};
  for (const IntervalTry& one : search.tries) {
    json["tries"].push_back({{"interval_seconds", one.interval_seconds},
                             {"goodput", one.goodput.mean},
                             {"half_width", one.goodput.half_width}});
  }
  return json;
}

Json goodput_json(const TrainingJob& job, const Goodput& result, const GoodputContext& context) {
  Json json = Json::object();
  json["goodput"] = result.goodput.mean;
  json["goodput_half_width"] = result.goodput.half_width;
  json["worst_goodput"] = result.worst;
  json["tokens_per_second"] = result.tokens_per_second.mean;
  json["tokens_per_second_half_width"] = result.tokens_per_second.half_width;
  json["fault_free_tokens_per_second"] = context.clusters.front().tokens_per_second;
  json["steady_tokens_per_second"] = nullptr;
  if (context.steady_tokens_per_second) {
    json["steady_tokens_per_second"] = *context.steady_tokens_per_second;
  }
  json["days"] = context.days;
  json["replications"] = context.replications;
  for (const Part& part : kParts) {
    json["wall_time"][part.key] = {
        {"share", result.time.*part.time / job.horizon_seconds},
        {"half_width", result.half_widths.*part.time / job.horizon_seconds}};
  }
  json["failures_per_run"] = result.failures.mean;
  json["checkpoints_per_run"] = result.checkpoints.mean;
  json["job_mtbf_seconds"] = nullptr;
  if (job.fails) json["job_mtbf_seconds"] = job_mtbf(job);
  json["checkpoint"] = {{"bytes", context.checkpoint_bytes},
                        {"write_seconds", job.write_seconds},
                        {"read_seconds", job.read_seconds},
                        {"stop_seconds", checkpoint_stop(job)},
                        {"interval_seconds", nullptr},
                        {"interval_iterations", nullptr},
                        {"interval_given", context.interval_given}};
  if (job.interval_iterations > 0) {
    json["checkpoint"]["interval_iterations"] = job.interval_iterations;
  } else {
    json["checkpoint"]["interval_seconds"] = job.interval_seconds;
  }
  json["intervals"] = nullptr;
  if (context.search) json["intervals"] = intervals_json(job, *context.search);
  json["clusters"] = to_json(cluster_table(context));
  RunSummary summary;
  summary.tokens_per_second = result.tokens_per_second.mean;
  add_token_cost(json, summary, context.rates);
  json["events"] = result.events;
  if (!context.reproducible && context.wall_seconds > 0) {
    json["simulated_days_per_second"] = context.days * context.replications / context.wall_seconds;
  }
  json["notes"] = context.notes.all();
  return json;
}

}  // namespace

Report goodput_report(const TrainingJob& job, const Goodput& result,
                      const GoodputContext& context) {
  std::vector<Table> tables{wall_table(job, result), summary_table(job, result, context)};
  if (context.search) tables.push_back(interval_table(job, context));
  if (context.clusters.size() > 1) tables.push_back(cluster_table(context));
  return {goodput_json(job, result, context), std::move(tables), {}};
}

}  // namespace hydraulis
