#include "planner/plan_json.h"

#include <fmt/format.h>

#include "base/error.h"
#include "costmodel/host_states.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kMostDevices = 1 << 20;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
constexpr std::int64_t kMostStages = 1 << 14;
constexpr std::size_t kMostStrategies = 1 << 12;

const char* name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return "none";
    case Recompute::selective:
      return "selective";
    case Recompute::full:
      return "full";
  }
  return "none";
}

Json scheme_json(const Scheme& scheme) {
  Json json = {{"cp", scheme.cp}, {"tp", scheme.tp}, {"pp", scheme.pp}};
  if (scheme.recompute != Recompute::none) json["recompute"] = name_of(scheme.recompute);
  if (!scheme.layers.empty()) json["layers"] = scheme.layers;
  if (scheme.group != 0) json["group"] = scheme.group;
  return json;
}

/// The array in a field; InputError unless it is one, within bounds.
const Json& array_of(JsonFields& fields, const std::string& field, std::size_t least,
                     std::size_t most) {
  const Json& json = fields.at(field);
  if (!json.is_array() || json.size() < least || json.size() > most) {
    throw InputError("{}: expected a list of {} to {} entries", fields.name(field), least, most);
  }
  return json;
}

int degree(JsonFields& fields, const std::string& field) {
  return static_cast<int>(fields.integer(field, 1, kMostDevices));
}

Scheme scheme_of(JsonFields& fields) {
  Scheme scheme;
  scheme.cp = degree(fields, "cp");
  scheme.tp = degree(fields, "tp");
  scheme.pp = static_cast<int>(fields.integer("pp", 1, kMostStages));
  const std::int64_t group = std::int64_t{scheme.cp} * scheme.tp;
  if (group > kMostDevices || group * scheme.pp > kMostDevices) {
    throw InputError("{}: cp·tp·pp is more than {} devices", fields.name("pp"), kMostDevices);
  }
  const std::string recompute = fields.text_or("recompute", "none");
  if (recompute == "selective") {
    scheme.recompute = Recompute::selective;
  } else if (recompute == "full") {
    scheme.recompute = Recompute::full;
  } else if (recompute != "none") {
    throw InputError("{}: '{}', expected none, selective or full", fields.name("recompute"),
                     recompute);
  }
  if (fields.has("layers")) {
    const auto stages = static_cast<std::size_t>(scheme.pp);
    for (const Json& layers : array_of(fields, "layers", stages, stages)) {
      if (!layers.is_number_integer() || layers < 1 || layers > kMostDevices) {
        throw InputError("{}: expected a positive number of layers for each of the {} stages",
                         fields.name("layers"), stages);
      }
      scheme.layers.push_back(layers.get<int>());
    }
  }
  scheme.group = static_cast<int>(fields.integer_or("group", 0, 0, kMostDevices));
  return scheme;
}

double coefficient(JsonFields& fields, const std::string& field) {
  const double value = fields.number(field);
  if (value < 0) throw InputError("{}: {}, expected 0 or more", fields.name(field), value);
  return value;
}

SchemeOption option_of(const Json& json, const std::string& where, const std::string& path) {
  JsonFields fields(json, where, path);
  SchemeOption option;
  option.scheme = scheme_of(fields);
  option.max_tokens = fields.integer("max_tokens", 0, kMostTokens);
  option.cost.a = coefficient(fields, "seconds_per_squared_token");
  option.cost.b = coefficient(fields, "seconds_per_token");
  option.cost.c = coefficient(fields, "seconds_per_micro_batch");
  fields.finish();
  return option;
}

OptimizerLayout layout_of(const Json& json, const std::string& where) {
  JsonFields fields(json, where, "optimizer_layout");
  OptimizerLayout layout{degree(fields, "dp"), degree(fields, "tp"), degree(fields, "pp")};
  fields.finish();
  if (std::int64_t{layout.dp} * layout.tp > kMostDevices ||
      std::int64_t{layout.dp} * layout.tp * layout.pp > kMostDevices) {
    throw InputError("{}: field 'optimizer_layout': dp·tp·pp is more than {} devices", where,
                     kMostDevices);
  }
  return layout;
}

}  // namespace

Json to_json(const Plan& plan, bool reproducible) {
  Json json;
  json["model"] = plan.model;
  json["cluster"] = plan.cluster;
  json["profile"] = plan.profile;
  json["memory_model"] = plan.memory_model;
  if (plan.scheme_space.any()) json["scheme_space"] = to_string(plan.scheme_space);
  json["context"] = plan.context;
  json["tokens_per_batch"] = plan.tokens_per_batch;
  json["schemes"] = Json::array();
  for (const SchemeOption& option : plan.schemes) {
    Json entry = scheme_json(option.scheme);
    entry["max_tokens"] = option.max_tokens;
    entry["seconds_per_squared_token"] = option.cost.a;
    entry["seconds_per_token"] = option.cost.b;
    entry["seconds_per_micro_batch"] = option.cost.c;
    json["schemes"].push_back(std::move(entry));
  }
  json["strategies"] = Json::array();
  for (const Strategy& strategy : plan.set.strategies) {
    Json pipelines = Json::array();
    for (const Scheme& scheme : strategy) pipelines.push_back(scheme_json(scheme));
    json["strategies"].push_back(std::move(pipelines));
  }
  const OptimizerLayout& layout = plan.set.optimizer;
  json["optimizer_layout"] = {{"dp", layout.dp}, {"tp", layout.tp}, {"pp", layout.pp}};
  if (plan.optimizer_states != OptimizerStates::device) {
    json["optimizer_states"] = to_string(plan.optimizer_states);
  }
  if (plan.schedule != ScheduleChoice{}) json["schedule"] = to_string(plan.schedule);
  if (!reproducible) json["proposal_seconds"] = plan.proposal_seconds;
  return json;
}

Plan plan_from_json(const Json& json, const std::string& where) {
  JsonFields fields(json, where, "");
  Plan plan;
  plan.model = fields.text("model");
  plan.cluster = fields.text("cluster");
  plan.profile = fields.text("profile");
  plan.memory_model = fields.text("memory_model");
  if (plan.memory_model != "published" && plan.memory_model != "composed") {
    throw InputError("{}: '{}', expected published or composed", fields.name("memory_model"),
                     plan.memory_model);
  }
  plan.scheme_space =
      parse_scheme_space(fields.text_or("scheme_space", ""), fields.name("scheme_space"));
  plan.context = static_cast<std::uint64_t>(fields.integer("context", 1, kMostTokens));
  plan.tokens_per_batch =
      static_cast<std::uint64_t>(fields.integer("tokens_per_batch", 0, kMostTokens));
  plan.optimizer_states = parse_optimizer_states(fields.text_or("optimizer_states", "device"),
                                                 fields.name("optimizer_states"));
  if (fields.has("schedule")) {
    plan.schedule = parse_schedule(fields.text("schedule"), fields.name("schedule"));
  }
  plan.proposal_seconds = fields.number_or("proposal_seconds", 0);
  if (plan.proposal_seconds < 0) {
    throw InputError("{} is {}, expected 0 or more", fields.name("proposal_seconds"),
                     plan.proposal_seconds);
  }
  plan.set.optimizer = layout_of(fields.at("optimizer_layout"), where);
  const std::int64_t available = plan.set.optimizer.devices();

  const Json& schemes = array_of(fields, "schemes", 0, kMostStrategies);
  for (std::size_t k = 0; k < schemes.size(); ++k) {
    plan.schemes.push_back(option_of(schemes[k], where, fmt::format("schemes[{}]", k)));
  }
  const Json& strategies = array_of(fields, "strategies", 1, kMostStrategies);
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    const std::string path = fmt::format("strategies[{}]", i);
    if (!strategies[i].is_array() || strategies[i].empty()) {
      throw InputError("{}: field '{}': expected a list of at least one pipeline", where, path);
    }
    Strategy strategy;
    std::int64_t used = 0;
    for (std::size_t p = 0; p < strategies[i].size(); ++p) {
      JsonFields pipeline(strategies[i][p], where, fmt::format("{}[{}]", path, p));
      strategy.push_back(scheme_of(pipeline));
      pipeline.finish();
      used += strategy.back().devices();
    }
    if (used > available) {
      throw InputError("{}: field '{}': its pipelines need {} devices, optimizer_layout has {}",
                       where, path, used, available);
    }
    plan.set.strategies.push_back(std::move(strategy));
  }
  fields.finish();
  return plan;
}

}  // namespace hydraulis
