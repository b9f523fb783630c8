// Reading of sweep files: the base, the grid, and the points that both make.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "sim/sweep.h"

namespace hydraulis {
namespace {

constexpr std::size_t kMostPoints = 1'000'000;

/// Fields of the base; those that hold fields of their own first.
constexpr std::array kObjects = {"model", "cluster", "trace", "faults"};
constexpr std::array kFields = {"model",
                                "cluster",
                                "trace",
                                "faults",
                                "profile",
                                "memory_model",
                                "schemes",
                                "policy",
                                "strategies",
                                "optimizer_layout",
                                "context",
                                "over_context",
                                "tokens_per_batch",
                                "sequences_per_batch",
                                "max_tokens",
                                "iterations",
                                "seed",
                                "no_communication",
                                "network",
                                "overlap",
                                "collectives",
                                "bandwidth_scale",
                                "latency_scale",
                                "keep_iteration"};

bool is_field(const std::string& name) { return std::ranges::find(kFields, name) != kFields.end(); }

bool has_fields(const std::string& name) {
  return std::ranges::find(kObjects, name) != kObjects.end();
}

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// An axis names a field of the base, or a field inside one of its objects.
void check_axis(const std::string& axis, const std::string& where) {
  const std::vector<std::string> parts = split(axis);
  const bool plain = std::ranges::none_of(parts, [](const std::string& part) {
    return part.empty() || part.find('/') != std::string::npos;
  });
  if (plain && is_field(parts[0]) && (parts.size() == 1 || has_fields(parts[0]))) return;
  throw InputError(
      "{}: field 'grid.{}': no such field; expected one of {}, or a field inside model, cluster, "
      "trace or faults such as cluster.inter_node.bandwidth_gigabits_per_second",
      where, axis, fmt::join(kFields, ", "));
}

void check_value(const std::string& axis, const Json& value, const std::string& where) {
  if (value.is_string() || value.is_boolean() || value.is_number()) return;
  throw InputError("{}: field 'grid.{}': {}, expected texts, numbers or booleans", where, axis,
                   value.dump());
}

/// Fields inside an object are kept under "with" until the name is looked up: "cluster.nodes" of 4
/// becomes {"name": "a800-64", "with": {"nodes": 4}}.
void set_field(Json& settings, const std::string& axis, const Json& value) {
  const std::vector<std::string> parts = split(axis);
  if (parts.size() == 1) {
    // A name in the grid replaces the base's, not the fields that other axes set inside it.
    if (has_fields(axis) && settings.contains(axis) && settings[axis].contains("with")) {
      settings[axis]["base"] = value;
    } else if (has_fields(axis)) {
      settings[axis] = {{"base", value}};
    } else {
      settings[axis] = value;
    }
    return;
  }
  settings[parts[0]]["with"][axis.substr(parts[0].size() + 1)] = value;
}

}  // namespace

Sweep parse_sweep(const Json& json, const std::string& where, const std::filesystem::path& folder) {
  JsonFields fields(json, where, "");
  Sweep sweep;
  sweep.where = where;
  sweep.folder = folder;
  sweep.name = fields.text_or("name", std::filesystem::path(where).stem().string());
  Json base = Json::object();
  for (const char* name : kFields) {
    if (!fields.has(name)) continue;
    const Json& value = fields.at(name);
    if (has_fields(name)) {
      if (!value.is_string() && !value.is_object()) {
        throw InputError("{} is {}, expected a name, a path or an object", fields.name(name),
                         value.dump());
      }
      base[name] = {{"base", value}};
    } else {
      base[name] = value;
    }
  }
  std::vector<std::vector<Json>> values;
  std::size_t count = 1;
  if (fields.has("grid")) {
    const Json& grid = fields.at("grid");
    if (!grid.is_object()) throw InputError("{} is not an object", fields.name("grid"));
    for (const auto& [axis, list] : grid.items()) {
      check_axis(axis, where);
      if (!list.is_array() || list.empty()) {
        throw InputError("{}: field 'grid.{}': expected a list of values", where, axis);
      }
      for (const Json& value : list) check_value(axis, value, where);
      if (list.size() > kMostPoints / count) {
        throw InputError("{}: field 'grid': more than {} points", where, kMostPoints);
      }
      count *= list.size();
      sweep.axes.push_back(axis);
      values.emplace_back(list.begin(), list.end());
    }
  }
  fields.finish();
  for (const char* name : {"model", "cluster", "trace"}) {
    const bool varied = std::ranges::find(sweep.axes, name) != sweep.axes.end();
    if (!base.contains(name) && !varied) {
      throw InputError("{}: field '{}' is missing", where, name);
    }
  }
  for (std::size_t index = 0; index < count; ++index) {
    SweepPoint point;
    point.settings = base;
    point.axis_values.resize(sweep.axes.size());
    std::size_t rest = index;
    for (std::size_t a = sweep.axes.size(); a-- > 0;) {
      point.axis_values[a] = values[a][rest % values[a].size()];
      rest /= values[a].size();
    }
    for (std::size_t a = 0; a < sweep.axes.size(); ++a) {
      set_field(point.settings, sweep.axes[a], point.axis_values[a]);
    }
    sweep.points.push_back(std::move(point));
  }
  return sweep;
}

}  // namespace hydraulis
