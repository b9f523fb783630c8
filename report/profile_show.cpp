#include "report/profile_show.h"

#include <fmt/format.h>

#include <algorithm>

#include "costmodel/fit.h"
#include "costmodel/kernel_work.h"
#include "costmodel/nccl_tests.h"
#include "report/profile_names.h"

namespace hydraulis {
namespace {

constexpr double kMicro = 1e6;
constexpr double kGiga = 1e-9;
constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

std::int64_t element_bytes(const std::string& data_type) {
  return data_type == "f64" ? 8 : data_type == "bf16" ? 2 : 4;
}

double spread(const Timing& time) {
  return (time.high_seconds - time.low_seconds) / time.median_seconds;
}

Json timing_json(const Timing& time, double fit_seconds) {
  return {{"median_us", kMicro * time.median_seconds},
          {"low_us", kMicro * time.low_seconds},
          {"high_us", kMicro * time.high_seconds},
          {"repeats", time.repeats},
          {"steady", time.steady},
          {"fit_us", kMicro * fit_seconds},
          {"residual", fit_seconds / time.median_seconds - 1}};
}

Json quality_json(const FitQuality& quality) {
  return {{"points", quality.points},
          {"mean_error", quality.mean_error},
          {"max_error", quality.max_error},
          {"bad", quality.bad()}};
}

/// The unit in the name of a cell's column keeps numbers apart from what they are of.
Cell percent(double share) { return 100 * share; }

Table machine_table(const OperatorProfile& profile) {
  const MachineDescription& machine = profile.machine;
  Table table;
  table.title = fmt::format("Profile {}: {}", profile.name, profile.origin);
  table.columns = {{"figure", "figure", 0, Align::left}, {"value", "value", 1, Align::left}};
  const auto add = [&](const char* figure, const std::string& value) {
    if (!value.empty()) table.rows.push_back({std::string(figure), value});
  };
  const auto rate = [](double value, const char* unit) {
    return value > 0 ? fmt::format("{:.1f} {}", value * kGiga, unit) : std::string();
  };
  add("device", machine.device);
  add("processor", machine.processor);
  add("host", machine.host);
  add("measured", machine.date);
  add("ranks",
      fmt::format("{} on {} node{}", machine.ranks, machine.nodes, machine.nodes == 1 ? "" : "s"));
  if (machine.cores > 0) {
    add("cores", fmt::format("{}, {} thread{} a rank", machine.cores, machine.threads_per_rank,
                             machine.threads_per_rank == 1 ? "" : "s"));
  }
  if (machine.memory_bytes > 0) {
    add("memory of a rank", fmt::format("{:.1f} GiB", machine.memory_bytes / kGibibyte));
  }
  add("clock", rate(machine.clock_hertz, "GHz"));
  add("ceiling of products", rate(machine.peak_flops, "GFLOP/s"));
  add("large copies", rate(machine.memory_bytes_per_second, "GB/s read and written"));
  for (const auto& [name, version] : machine.software) add(name.c_str(), version);
  return table;
}

Json machine_json(const MachineDescription& machine) {
  Json json = {{"device", machine.device},
               {"backend", machine.backend},
               {"processor", machine.processor},
               {"host", machine.host},
               {"date", machine.date},
               {"ranks", machine.ranks},
               {"nodes", machine.nodes},
               {"cores", machine.cores},
               {"threads_per_rank", machine.threads_per_rank},
               {"memory_bytes", machine.memory_bytes},
               {"clock_hertz", machine.clock_hertz},
               {"peak_flops", machine.peak_flops},
               {"memory_bytes_per_second", machine.memory_bytes_per_second},
               {"software", Json::object()}};
  for (const auto& [name, version] : machine.software) json["software"][name] = version;
  return json;
}

class KernelRows {
 public:
  explicit KernelRows(const OperatorProfile& profile) : profile_(profile) {
    table_.title = "Kernels";
    table_.columns = {{"kernel", "kernel", 0, Align::left},
                      {"points", "points"},
                      {"least_tokens", "tokens from"},
                      {"most_tokens", "to"},
                      {"median_us", "us at most", 1},
                      {"gflops", "best GFLOP/s", 1},
                      {"gigabytes_per_second", "best GB/s", 1},
                      {"spread_percent", "spread %", 1},
                      {"mean_error_percent", "fit off by %", 1},
                      {"max_error_percent", "at most %", 1}};
  }

  void add(const KernelFit& fit) {
    double flops = 0;
    double bytes = 0;
    double widest = 0;
    const KernelSample* largest = nullptr;
    Json samples = Json::array();
    for (const KernelSample& sample : profile_.kernels) {
      if (!(sample.shape == fit.shape) || sample.data_type != fit.data_type) continue;
      const double seconds = sample.time.median_seconds;
      const KernelWork work =
          kernel_work(sample.shape, sample.tokens, sample.length, element_bytes(sample.data_type));
      flops = std::max(flops, work.flops / seconds);
      bytes = std::max(bytes, static_cast<double>(work.bytes) / seconds);
      widest = std::max(widest, spread(sample.time));
      if (largest == nullptr || seconds > largest->time.median_seconds) largest = &sample;
      const auto tokens = static_cast<double>(sample.tokens);
      const double fitted = fit.seconds(tokens, tokens * static_cast<double>(sample.length));
      Json json = {{"tokens", sample.tokens}, {"length", sample.length}};
      json.update(timing_json(sample.time, fitted));
      json["allocated_bytes"] = sample.allocated_bytes;
      samples.push_back(std::move(json));
    }
    table_.rows.push_back({kernel_name(fit.shape, fit.data_type), std::int64_t{fit.quality.points},
                           static_cast<std::int64_t>(fit.least_tokens),
                           static_cast<std::int64_t>(fit.most_tokens),
                           kMicro * largest->time.median_seconds,
                           flops > 0 ? Cell(flops * kGiga) : Cell(), bytes * kGiga, percent(widest),
                           percent(fit.quality.mean_error), percent(fit.quality.max_error)});
    json_.push_back({{"kernel", to_string(fit.shape.kernel)},
                     {"data_type", fit.data_type},
                     {"inputs", fit.shape.inputs},
                     {"outputs", fit.shape.outputs},
                     {"width", fit.shape.width},
                     {"heads", fit.shape.heads},
                     {"kv_heads", fit.shape.kv_heads},
                     {"head_dim", fit.shape.head_dim},
                     {"best_flops", flops},
                     {"best_bytes_per_second", bytes},
                     {"fit", quality_json(fit.quality)},
                     {"samples", std::move(samples)}});
  }

  Table table_;
  Json json_ = Json::array();

 private:
  const OperatorProfile& profile_;
};

void add_collectives(const OperatorProfile& profile, const OperatorFits& fits, Report& report) {
  Table table;
  table.title = "Collectives";
  table.columns = {{"operation", "operation", 0, Align::left},
                   {"ranks", "ranks"},
                   {"nodes", "nodes"},
                   {"bytes", "bytes"},
                   {"median_us", "us", 1},
                   {"algbw_gigabytes_per_second", "algbw GB/s", 3},
                   {"busbw_gigabytes_per_second", "busbw GB/s", 3},
                   {"spread_percent", "spread %", 1},
                   {"fit_us", "fit us", 1},
                   {"residual_percent", "off by %", 1}};
  Json json = Json::array();
  for (const CollectiveFit& fit : fits.collectives) {
    for (const CollectiveSample& sample : profile.collectives) {
      if (sample.operation != fit.operation || sample.ranks != fit.ranks ||
          sample.nodes != fit.nodes) {
        continue;
      }
      const double algbw = static_cast<double>(sample.bytes) / sample.time.median_seconds * kGiga;
      const double busbw = algbw * bus_factor(sample.operation, sample.ranks);
      const double fitted = fit.curve.at(static_cast<double>(sample.bytes));
      table.rows.push_back({std::string(to_string(sample.operation)), std::int64_t{sample.ranks},
                            std::int64_t{sample.nodes}, sample.bytes,
                            kMicro * sample.time.median_seconds, algbw, busbw,
                            percent(spread(sample.time)), kMicro * fitted,
                            percent(fitted / sample.time.median_seconds - 1)});
      Json row = {{"operation", to_string(sample.operation)},
                  {"ranks", sample.ranks},
                  {"nodes", sample.nodes},
                  {"bytes", sample.bytes},
                  {"algbw_gigabytes_per_second", algbw},
                  {"busbw_gigabytes_per_second", busbw},
                  {"checked", sample.checked}};
      row.update(timing_json(sample.time, fitted));
      json.push_back(std::move(row));
    }
  }
  report.json["collectives"] = std::move(json);
  if (table.rows.empty()) return;
  table.notes.push_back(
      "bytes: the whole (all-gather, reduce-scatter, all-to-all: the part of each rank times the "
      "ranks); algbw = bytes / time; busbw = algbw × 2(n−1)/n for all-reduce, × (n−1)/n for "
      "all-gather, reduce-scatter and all-to-all, × 1 for broadcast and send");
  report.tables.push_back(std::move(table));
}

void add_copies(const OperatorProfile& profile, const OperatorFits& fits, Report& report) {
  Table table;
  table.title = "Copies";
  table.columns = {{"direction", "direction", 0, Align::left},
                   {"bytes", "bytes"},
                   {"median_us", "us", 1},
                   {"gigabytes_per_second", "GB/s", 2},
                   {"spread_percent", "spread %", 1},
                   {"residual_percent", "fit off by %", 1}};
  Json json = Json::array();
  for (const CopyFit& fit : fits.copies) {
    for (const CopySample& sample : profile.copies) {
      if (sample.direction != fit.direction) continue;
      const double fitted = fit.curve.at(static_cast<double>(sample.bytes));
      const double seconds = sample.time.median_seconds;
      const double rate = static_cast<double>(sample.bytes) / seconds * kGiga;
      table.rows.push_back({std::string(to_string(sample.direction)), sample.bytes,
                            kMicro * seconds, rate, percent(spread(sample.time)),
                            percent(fitted / seconds - 1)});
      Json row = {{"direction", to_string(sample.direction)},
                  {"bytes", sample.bytes},
                  {"gigabytes_per_second", rate}};
      row.update(timing_json(sample.time, fitted));
      json.push_back(std::move(row));
    }
  }
  report.json["copies"] = std::move(json);
  if (!table.rows.empty()) report.tables.push_back(std::move(table));
}

void add_excluded(const OperatorProfile& profile, Report& report) {
  Table table;
  table.title = "Left out";
  table.columns = {{"what", "what", 0, Align::left}, {"reason", "why", 0, Align::left}};
  report.json["excluded"] = Json::array();
  for (const ExcludedPoint& point : profile.excluded) {
    table.rows.push_back({point.what, point.reason});
    report.json["excluded"].push_back({{"what", point.what}, {"reason", point.reason}});
  }
  if (!table.rows.empty()) report.tables.push_back(std::move(table));
}

}  // namespace

Report profile_report(const OperatorProfile& profile, const std::string& where) {
  const OperatorFits fits = fit_operators(profile, where);
  Report report;
  report.json = {{"name", profile.name},
                 {"origin", profile.origin},
                 {"machine", machine_json(profile.machine)},
                 {"process_bytes", profile.memory.process_bytes},
                 {"workspace_bytes", profile.memory.workspace_bytes}};
  report.json["ranks"] = Json::array();
  for (const RankSpeed& rank : profile.ranks) {
    report.json["ranks"].push_back({{"rank", rank.rank},
                                    {"host", rank.host},
                                    {"flops", rank.flops},
                                    {"copy_bytes_per_second", rank.copy_bytes_per_second}});
  }
  report.tables.push_back(machine_table(profile));
  KernelRows kernels(profile);
  for (const KernelFit& fit : fits.kernels) kernels.add(fit);
  report.json["kernels"] = std::move(kernels.json_);
  if (!kernels.table_.rows.empty()) report.tables.push_back(std::move(kernels.table_));
  add_collectives(profile, fits, report);
  add_copies(profile, fits, report);
  add_excluded(profile, report);
  std::vector<std::string> notes = profile.notes;
  for (const std::string& sentence : bad_fits(fits)) notes.push_back(sentence);
  report.json["notes"] = notes;
  std::vector<std::string>& last = report.tables.back().notes;
  last.insert(last.end(), notes.begin(), notes.end());
  return report;
}

}  // namespace hydraulis
