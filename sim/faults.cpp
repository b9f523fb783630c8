#include "sim/faults.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr double kMostSeconds = 1e10;  ///< 300 years
constexpr double kMostFactor = 1e6;
constexpr double kMostVariation = 10;
constexpr std::int64_t kMostIterations = 1'000'000'000'000;
constexpr std::int64_t kMostDevices = 1 << 20;
constexpr double kMinute = 60;
constexpr double kHour = 3600;
constexpr double kDay = 24 * kHour;

double in_range(const JsonFields& fields, const std::string& field, double value, double low,
                double high) {
  if (value < low || value > high) {
    throw InputError("{} is {:g}, expected {:g} to {:g}", fields.name(field), value, low, high);
  }
  return value;
}

double number_in(JsonFields& fields, const std::string& field, double fallback, double low,
                 double high) {
  return in_range(fields, field, fields.number_or(field, fallback), low, high);
}

/// A time in exactly one of its units: "NAME_seconds", "_minutes", "_hours" or "_days".
std::optional<double> time_of(JsonFields& fields, const std::string& name) {
  std::optional<double> seconds;
  for (const auto& [unit, length] :
       {std::pair{"seconds", 1.0}, {"minutes", kMinute}, {"hours", kHour}, {"days", kDay}}) {
    const std::string field = name + "_" + unit;
    if (!fields.has(field)) continue;
    if (seconds) throw InputError("{}: given in two units, expected one", fields.name(field));
    seconds = number_in(fields, field, 0, 0, kMostSeconds / length) * length;
  }
  return seconds;
}

double time_or(JsonFields& fields, const std::string& name, double fallback) {
  return time_of(fields, name).value_or(fallback);
}

Jitter read_jitter(const Json& json, const std::string& where, const std::string& path) {
  JsonFields fields(json, where, path);
  Jitter jitter;
  const std::string law = fields.text_or("distribution", "lognormal");
  if (law == "uniform") {
    jitter.law = JitterLaw::uniform;
  } else if (law == "tail") {
    jitter.law = JitterLaw::tail;
  } else if (law != "lognormal") {
    throw InputError("{} is '{}', expected lognormal, uniform or tail", fields.name("distribution"),
                     law);
  }
  // Beyond these, times would be below 0.
  const double most = jitter.law == JitterLaw::lognormal ? kMostVariation
                      : jitter.law == JitterLaw::uniform ? 1 / std::sqrt(3.0)
                                                         : 1.0;
  const std::string field = "coefficient_of_variation";
  jitter.variation = in_range(fields, field, fields.number(field), 0, most);
  const std::string per = fields.text_or("per", "instruction");
  if (per != "instruction" && per != "iteration") {
    throw InputError("{} is '{}', expected instruction or iteration", fields.name("per"), per);
  }
  jitter.per_iteration = per == "iteration";
  fields.finish();
  return jitter;
}

std::vector<int> read_numbers(JsonFields& fields, const std::string& field) {
  std::vector<int> numbers;
  if (!fields.has(field)) return numbers;
  const Json& list = fields.at(field);
  const auto fits = [](const Json& item) {
    return item.is_number_integer() && item >= 0 && item < kMostDevices;
  };
  if (!list.is_array() || list.empty() || !std::ranges::all_of(list, fits)) {
    throw InputError("{}: expected a list of whole numbers from 0", fields.name(field));
  }
  for (const Json& item : list) numbers.push_back(item.get<int>());
  return numbers;
}

Slowdown read_slowdown(const Json& json, const std::string& where, const std::string& path,
                       bool link) {
  JsonFields fields(json, where, path);
  Slowdown slowdown;
  slowdown.devices = read_numbers(fields, "devices");
  slowdown.nodes = read_numbers(fields, "nodes");
  slowdown.device_share = number_in(fields, "device_share", 0, 0, 1);
  slowdown.node_share = number_in(fields, "node_share", 0, 0, 1);
  const int named =
      static_cast<int>(!slowdown.devices.empty()) + static_cast<int>(!slowdown.nodes.empty()) +
      static_cast<int>(fields.has("device_share")) + static_cast<int>(fields.has("node_share"));
  if (named != 1) {
    throw InputError(
        "{}: field '{}' names {}, expected exactly one of devices, nodes, device_share and "
        "node_share",
        where, path, named == 0 ? "nobody" : "several");
  }
  slowdown.factor = in_range(fields, "factor", fields.number("factor"), 1, kMostFactor);
  slowdown.from =
      static_cast<std::uint64_t>(fields.integer_or("from_iteration", 0, 0, kMostIterations));
  if (fields.has("iterations")) {
    slowdown.count = static_cast<std::uint64_t>(fields.integer("iterations", 1, kMostIterations));
  }
  slowdown.probability = number_in(fields, "probability", 1, 0, 1);
  if (link) {
    const std::string which = fields.text_or("link", "all");
    if (which != "all" && which != "intra_node" && which != "inter_node") {
      throw InputError("{} is '{}', expected all, intra_node or inter_node", fields.name("link"),
                       which);
    }
    slowdown.inside_nodes = which != "inter_node";
    slowdown.between_nodes = which != "intra_node";
  }
  fields.finish();
  return slowdown;
}

std::vector<Slowdown> read_slowdowns(JsonFields& fields, const std::string& where,
                                     const std::string& field, bool link) {
  std::vector<Slowdown> slowdowns;
  if (!fields.has(field)) return slowdowns;
  const Json& list = fields.at(field);
  if (!list.is_array()) throw InputError("{}: expected a list of objects", fields.name(field));
  for (std::size_t i = 0; i < list.size(); ++i) {
    slowdowns.push_back(read_slowdown(list[i], where, fmt::format("{}[{}]", field, i), link));
  }
  return slowdowns;
}

FailureModel read_failures(const Json& json, const std::string& where) {
  JsonFields fields(json, where, "failures");
  FailureModel failures;
  const auto mtbf = time_of(fields, "node_mtbf");
  if (!mtbf || !(*mtbf >= 1)) {
    throw InputError("{}: expected the mean time between failures of a node, at least 1 second",
                     fields.name("node_mtbf_hours"));
  }
  failures.node_mtbf_seconds = *mtbf;
  failures.weibull_shape = number_in(fields, "weibull_shape", 1, 0.1, 20);
  failures.transient_share = number_in(fields, "transient_share", 0, 0, 1);
  failures.detection_seconds = time_or(fields, "detection", 0);
  failures.restart_seconds = time_or(fields, "restart", 0);
  fields.finish();
  return failures;
}

CheckpointModel read_checkpoint(const Json& json, const std::string& where) {
  JsonFields fields(json, where, "checkpoint");
  CheckpointModel checkpoint;
  checkpoint.interval_seconds = time_of(fields, "interval");
  if (fields.has("interval_iterations")) {
    checkpoint.interval_iterations =
        static_cast<std::uint64_t>(fields.integer("interval_iterations", 1, kMostIterations));
  }
  if (checkpoint.interval_seconds && checkpoint.interval_iterations) {
    throw InputError("{}: the interval is given as a time too, expected one of both",
                     fields.name("interval_iterations"));
  }
  if (checkpoint.interval_seconds && *checkpoint.interval_seconds <= 0) {
    throw InputError("{} is 0, expected more", fields.name("interval_seconds"));
  }
  checkpoint.write_seconds = time_of(fields, "write");
  checkpoint.read_seconds = time_of(fields, "read");
  const auto bandwidth = [&](const char* field) {
    return fields.has(field) ? in_range(fields, field, fields.positive(field), 1e-6, 1e9) * 1e9 : 0;
  };
  checkpoint.bytes_per_parameter = number_in(fields, "bytes_per_parameter", 0, 0, 1e3);
  checkpoint.write_bandwidth = bandwidth("write_gigabytes_per_second");
  checkpoint.write_bandwidth_per_node = bandwidth("write_gigabytes_per_second_per_node");
  checkpoint.read_bandwidth = bandwidth("read_gigabytes_per_second");
  checkpoint.read_bandwidth_per_node = bandwidth("read_gigabytes_per_second_per_node");
  const bool limited = checkpoint.write_bandwidth > 0 || checkpoint.write_bandwidth_per_node > 0;
  if (checkpoint.write_seconds.has_value() == limited) {
    throw InputError(
        "{}: field 'checkpoint': expected either write_seconds or a bandwidth "
        "(write_gigabytes_per_second, write_gigabytes_per_second_per_node)",
        where);
  }
  checkpoint.asynchronous = fields.boolean_or("asynchronous", false);
  checkpoint.snapshot_seconds = time_or(fields, "snapshot", 0);
  if (checkpoint.snapshot_seconds > 0 && !checkpoint.asynchronous) {
    throw InputError("{}: only an asynchronous checkpoint has a snapshot",
                     fields.name("snapshot_seconds"));
  }
  fields.finish();
  return checkpoint;
}

RecoveryModel read_recovery(const Json& json, const std::string& where) {
  JsonFields fields(json, where, "recovery");
  RecoveryModel recovery;
  const std::string mode = fields.text_or("mode", "replace");
  if (mode != "replace" && mode != "shrink") {
    throw InputError("{} is '{}', expected replace or shrink", fields.name("mode"), mode);
  }
  recovery.mode = mode == "shrink" ? RecoveryMode::shrink : RecoveryMode::replace;
  recovery.spare_nodes = static_cast<int>(fields.integer_or("spare_nodes", 0, 0, kMostDevices));
  recovery.repair_seconds = time_or(fields, "repair", 0);
  const std::string law = fields.text_or("repair_distribution", "fixed");
  if (law != "fixed" && law != "exponential") {
    throw InputError("{} is '{}', expected fixed or exponential",
                     fields.name("repair_distribution"), law);
  }
  recovery.exponential_repair = law == "exponential";
  if (fields.has("least_nodes")) {
    if (recovery.mode != RecoveryMode::shrink) {
      throw InputError("{}: only the mode shrink goes on with fewer nodes",
                       fields.name("least_nodes"));
    }
    recovery.least_nodes = static_cast<int>(fields.integer("least_nodes", 1, kMostDevices));
  }
  fields.finish();
  return recovery;
}

double seconds_of(double bytes, double total, double per_node, int nodes) {
  double slowest = 0;
  if (total > 0) slowest = bytes / total;
  if (per_node > 0) slowest = std::max(slowest, bytes / (per_node * nodes));
  return slowest;
}

}  // namespace

Faults parse_faults(const Json& json, const std::string& where) {
  JsonFields fields(json, where, "");
  Faults faults;
  faults.where = where;
  faults.variance.seed = static_cast<std::uint64_t>(
      fields.integer_or("seed", 0, 0, std::numeric_limits<std::int64_t>::max()));
  if (fields.has("jitter")) {
    JsonFields jitter(fields.at("jitter"), where, "jitter");
    if (jitter.has("compute")) {
      faults.variance.compute = read_jitter(jitter.at("compute"), where, "jitter.compute");
    }
    if (jitter.has("transfer")) {
      faults.variance.transfer = read_jitter(jitter.at("transfer"), where, "jitter.transfer");
    }
    jitter.finish();
  }
  faults.variance.stragglers = read_slowdowns(fields, where, "stragglers", false);
  faults.variance.slow_links = read_slowdowns(fields, where, "slow_links", true);
  if (fields.has("failures")) faults.failures = read_failures(fields.at("failures"), where);
  if (fields.has("checkpoint")) {
    faults.checkpoint = read_checkpoint(fields.at("checkpoint"), where);
  }
  if (fields.has("recovery")) {
    if (!faults.failures) {
      throw InputError("{}: without failures there is nothing to recover from",
                       fields.name("recovery"));
    }
    faults.recovery = read_recovery(fields.at("recovery"), where);
  }
  fields.ignore("notes");
  fields.finish();
  return faults;
}

Faults load_faults(const std::string& path) { return parse_faults(read_json_file(path), path); }

double checkpoint_write_seconds(const CheckpointModel& checkpoint, double parameters,
                                double bytes_per_parameter, int nodes) {
  if (checkpoint.write_seconds) return *checkpoint.write_seconds;
  const double each =
      checkpoint.bytes_per_parameter > 0 ? checkpoint.bytes_per_parameter : bytes_per_parameter;
  return seconds_of(parameters * each, checkpoint.write_bandwidth,
                    checkpoint.write_bandwidth_per_node, nodes);
}

double checkpoint_read_seconds(const CheckpointModel& checkpoint, double parameters,
                               double bytes_per_parameter, int nodes) {
  if (checkpoint.read_seconds) return *checkpoint.read_seconds;
  const bool own = checkpoint.read_bandwidth > 0 || checkpoint.read_bandwidth_per_node > 0;
  if (!own) return checkpoint_write_seconds(checkpoint, parameters, bytes_per_parameter, nodes);
  const double each =
      checkpoint.bytes_per_parameter > 0 ? checkpoint.bytes_per_parameter : bytes_per_parameter;
  return seconds_of(parameters * each, checkpoint.read_bandwidth,
                    checkpoint.read_bandwidth_per_node, nodes);
}

}  // namespace hydraulis
