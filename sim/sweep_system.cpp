// A point of a sweep as a system: names looked up, fields inside them set.

#include "sim/sweep_system.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/error.h"
#include "costmodel/build_cost_model.h"
#include "costmodel/cluster_spec.h"
#include "costmodel/model_spec.h"
#include "sim/faults.h"
#include "traces/synth.h"

namespace hydraulis::detail {
namespace {

constexpr std::int64_t kMostTokens = 1'000'000'000'000;
constexpr std::int64_t kMostIterations = 10'000'000;
constexpr std::int64_t kMostContext = 1'000'000'000;
constexpr std::int64_t kMostDocuments = 4294967295;
constexpr std::int64_t kMostSize = 1 << 28;
constexpr std::int64_t kDefaultTokens = 200'000;
constexpr std::int64_t kDefaultIterations = 20;
constexpr std::int64_t kDefaultDocuments = 200'000;

/// A file beside the sweep file if there is one, else the name as it is: a preset.
std::string resolved(const std::string& name, const std::filesystem::path& folder) {
  std::error_code ec;
  const std::filesystem::path beside = folder / name;
  return !name.empty() && std::filesystem::is_regular_file(beside, ec) ? beside.string() : name;
}

/// Sets a field by its path inside an object; list elements by their index. Whether such a field
/// may be is the reader's to say.
void set_path(Json& object, const std::string& path, const Json& value, const std::string& what) {
  Json* at = &object;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    if (at->is_array()) {
      const bool digits =
          !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
      const std::size_t index = digits && name.size() < 6 ? std::stoul(name) : at->size();
      if (index >= at->size()) {
        throw InputError("{}: '{}' names element {} of a list of {}", what, path, name, at->size());
      }
      at = &(*at)[index];
    } else if (at->is_object() || at->is_null()) {
      if (at->is_null()) *at = Json::object();
      // A link has its bandwidth in one of two units; the one that is set replaces the other.
      if (name == "bandwidth_gigabits_per_second") at->erase("bandwidth_gigabytes_per_second");
      if (name == "bandwidth_gigabytes_per_second") at->erase("bandwidth_gigabits_per_second");
      at = &(*at)[name];
    } else {
      throw InputError("{}: '{}' goes into a value, not an object", what, path);
    }
    begin = end + 1;
  }
  *at = value;
}

void apply_with(Json& object, const Json& part, const std::string& what) {
  if (!part.contains("with")) return;
  for (const auto& [path, value] : part.at("with").items()) set_path(object, path, value, what);
}

Json model_json(const ModelSpec& model) {
  return {{"name", model.name},
          {"layers", model.layers},
          {"hidden", model.hidden},
          {"ffn_hidden", model.ffn_hidden},
          {"heads", model.heads},
          {"kv_heads", model.kv_heads},
          {"head_dim", model.head_dim},
          {"vocab", model.vocab},
          {"tied_embeddings", model.tied_embeddings},
          {"qkv_bias", model.qkv_bias},
          {"qk_norm", model.qk_norm}};
}

ModelSpec model_of(const Json& json, const std::string& where) {
  JsonFields fields(json, where, "model");
  const auto size = [&](const char* name) {
    return static_cast<int>(fields.integer(name, 1, kMostSize));
  };
  ModelSpec model;
  model.name = fields.text_or("name", "model");
  model.layers = size("layers");
  model.hidden = size("hidden");
  model.ffn_hidden = size("ffn_hidden");
  model.heads = size("heads");
  model.kv_heads = size("kv_heads");
  model.head_dim = size("head_dim");
  model.vocab = size("vocab");
  model.tied_embeddings = fields.boolean_or("tied_embeddings", false);
  model.qkv_bias = fields.boolean_or("qkv_bias", false);
  model.qk_norm = fields.boolean_or("qk_norm", false);
  fields.finish();
  check_model(model, where);
  return model;
}

void read_model(const Json& part, const Sweep& sweep, SweepSystem& system) {
  Json json = part.at("base");
  if (json.is_string()) {
    system.request.model = resolved(json.get<std::string>(), sweep.folder);
    json = model_json(load_model(system.request.model));
  }
  apply_with(json, part, sweep.where + ": model");
  system.model = model_of(json, sweep.where);
  system.settings["model"] = model_json(system.model);
}

void read_cluster(const Json& part, const Sweep& sweep, SweepSystem& system) {
  Json json = part.at("base");
  if (json.is_string()) {
    system.request.cluster = resolved(json.get<std::string>(), sweep.folder);
    json = cluster_json(load_cluster(system.request.cluster));
  }
  apply_with(json, part, sweep.where + ": cluster");
  system.cluster = parse_cluster(json, sweep.where + ": cluster");
  system.settings["cluster"] = cluster_json(system.cluster);
}

/// A trace by name, or a law: {"preset": "commoncrawl"} or {"mu": …}, with documents and seed.
void read_trace(const Json& part, const Sweep& sweep, SweepSystem& system) {
  Json json = part.at("base");
  if (json.is_string() && !part.contains("with")) {
    json = resolved(json.get<std::string>(), sweep.folder);
  } else {
    if (json.is_string()) json = {{"preset", json}};
    apply_with(json, part, sweep.where + ": trace");
  }
  system.settings["trace"] = json;
  system.trace = json.dump();
}

/// A faults file by name, or its object. What is not variance is for `goodput`.
void read_faults(const Json& part, const Sweep& sweep, SweepSystem& system) {
  Json json = part.value("base", Json::object());
  if (json.is_string()) json = read_json_file(resolved(json.get<std::string>(), sweep.folder));
  const std::string where = sweep.where + ": faults";
  apply_with(json, part, where);
  system.variance = parse_faults(json, where).variance;
  check_variance(system.variance, system.cluster, where);
  system.settings["faults"] = json;
}

LengthTrace draw_trace(const Json& json, const std::string& where) {
  JsonFields fields(json, where, "trace");
  const auto documents = static_cast<std::uint64_t>(
      fields.integer_or("documents", kDefaultDocuments, 1, kMostDocuments));
  const auto seed = static_cast<std::uint64_t>(
      fields.integer_or("seed", 0, 0, std::numeric_limits<std::int64_t>::max()));
  TwoPieceLaw law;
  bool changed = false;
  std::string preset;
  if (fields.has("preset")) {
    preset = fields.text("preset");
    if (preset != "longmix") law = preset_law(preset);
  }
  for (const auto& [name, field] : {std::pair{"mu", &TwoPieceLaw::mu},
                                    {"sigma", &TwoPieceLaw::sigma},
                                    {"xm", &TwoPieceLaw::xm},
                                    {"alpha", &TwoPieceLaw::alpha},
                                    {"p", &TwoPieceLaw::p},
                                    {"lo", &TwoPieceLaw::lo},
                                    {"hi", &TwoPieceLaw::hi}}) {
    if (!fields.has(name)) continue;
    law.*field = fields.number(name);
    changed = true;
  }
  fields.finish();
  if (!changed && preset.empty()) {
    throw InputError("{}: field 'trace': expected a preset or a law (mu, sigma, xm, …)", where);
  }
  if (changed && preset == "longmix") {
    throw InputError("{}: field 'trace': the preset longmix has no law whose fields can be set",
                     where);
  }
  return changed ? synthesize(law, documents, seed) : synthesize_preset(preset, documents, seed);
}

/// Whoever measures a profile anew wants its points anew.
std::string file_state(const std::string& path) {
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec)) return {};
  const auto time = std::filesystem::last_write_time(path, ec).time_since_epoch();
  return fmt::format("{} bytes, written {}", std::filesystem::file_size(path, ec),
                     std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

}  // namespace

LengthTrace load_sweep_trace(const std::string& key, const std::string& where) {
  const Json json = Json::parse(key);
  return json.is_string() ? load_trace(json.get<std::string>()) : draw_trace(json, where);
}

SweepSystem sweep_system(const Sweep& sweep, const SweepPoint& point) {
  SweepSystem system;
  JsonFields fields(point.settings, sweep.where, "");
  system.settings = Json::object();
  read_model(fields.at("model"), sweep, system);
  read_cluster(fields.at("cluster"), sweep, system);
  read_trace(fields.at("trace"), sweep, system);

  PlanRequest& request = system.request;
  request.profile = resolved(fields.text_or("profile", ""), sweep.folder);
  if (!request.profile.empty()) system.profile = load_profile(request.profile);
  const std::string memory = fields.text_or("memory_model", "");
  if (memory == "published") request.memory_model = MemoryModel::published;
  if (memory == "composed") request.memory_model = MemoryModel::composed;
  if (!memory.empty() && !request.memory_model) {
    throw InputError("{} is '{}', expected published or composed", fields.name("memory_model"),
                     memory);
  }
  request.schemes = parse_scheme_space(fields.text_or("schemes", ""), fields.name("schemes"));
  request.strategies = fields.text_or("strategies", "");
  request.optimizer_layout = fields.text_or("optimizer_layout", "");
  const auto whole = [&](const char* name, std::int64_t fallback, std::int64_t low,
                         std::int64_t high) {
    return static_cast<std::uint64_t>(fields.integer_or(name, fallback, low, high));
  };
  request.context = whole("context", 32768, 1, kMostContext);
  const std::uint64_t sequences = whole("sequences_per_batch", 0, 0, kMostSequencesPerBatch);
  const std::uint64_t tokens =
      whole("tokens_per_batch", sequences > 0 ? 0 : kDefaultTokens, 0, kMostTokens);
  if ((tokens > 0) == (sequences > 0)) {
    throw InputError("{}: expected tokens_per_batch or sequences_per_batch, one of both",
                     sweep.where);
  }
  request.tokens_per_batch = tokens;
  request.max_tokens = static_cast<std::int64_t>(whole("max_tokens", 0, 0, kMostTokens));
  system.policy = fields.text_or("policy", "hydraulis");
  policy_info(system.policy);  // says which exist
  system.sampling.tokens_per_batch = tokens;
  system.sampling.sequences_per_batch = sequences;
  system.sampling.context = request.context;
  const std::string over = fields.text_or("over_context", "error");
  system.sampling.over_context = parse_over_context(over);
  system.sampling.seed = whole("seed", 0, 0, std::numeric_limits<std::int64_t>::max());
  system.iterations = whole("iterations", kDefaultIterations, 1, kMostIterations);
  system.costing.no_communication = fields.boolean_or("no_communication", false);
  system.costing.network =
      parse_network_use(fields.text_or("network", "auto"), fields.name("network"));
  request.traffic_overlaps = fields.boolean_or("overlap", false);
  system.overlap = request.traffic_overlaps ? Overlap::on : Overlap::off;
  system.costing.collectives =
      parse_collectives(fields.text_or("collectives", "links"), fields.name("collectives"));
  system.costing.bandwidth_scale = fields.number_or("bandwidth_scale", 1);
  system.costing.latency_scale = fields.number_or("latency_scale", 1);
  if (!(system.costing.bandwidth_scale > 0) || system.costing.latency_scale < 0) {
    throw InputError(
        "{}: bandwidth_scale {}, latency_scale {}: expected a number above 0 and one "
        "not below",
        sweep.where, system.costing.bandwidth_scale, system.costing.latency_scale);
  }
  if (fields.has("keep_iteration")) {
    system.keep_iteration = whole("keep_iteration", 0, 0, kMostIterations);
    if (*system.keep_iteration >= system.iterations) {
      throw InputError("{} is {}, expected 0 to {}", fields.name("keep_iteration"),
                       *system.keep_iteration, system.iterations - 1);
    }
  }
  fields.ignore("faults");  // read last: plans do not depend on it
  fields.finish();

  Json& settings = system.settings;
  settings["profile"] = request.profile;
  settings["profile_file"] = file_state(request.profile);
  settings["memory_model"] = memory;
  if (request.schemes.any()) settings["schemes"] = to_string(request.schemes);
  settings["strategies"] = request.strategies;
  settings["optimizer_layout"] = request.optimizer_layout;
  settings["context"] = request.context;
  settings["tokens_per_batch"] = tokens;
  settings["sequences_per_batch"] = sequences;
  settings["max_tokens"] = request.max_tokens;
  settings["overlap"] = request.traffic_overlaps;
  system.plan_key = settings.dump();
  settings["over_context"] = over;
  settings["seed"] = system.sampling.seed;
  settings["iterations"] = system.iterations;
  settings["no_communication"] = system.costing.no_communication;
  settings["network"] = to_string(system.costing.network);
  settings["collectives"] = collectives_name(system.costing.collectives);
  settings["bandwidth_scale"] = system.costing.bandwidth_scale;
  settings["latency_scale"] = system.costing.latency_scale;
  if (system.keep_iteration) settings["keep_iteration"] = *system.keep_iteration;
  settings["policy"] = system.policy;
  if (point.settings.contains("faults")) {
    read_faults(fields.at("faults"), sweep, system);
  }
  return system;
}

}  // namespace hydraulis::detail
