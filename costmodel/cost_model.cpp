#include "costmodel/cost_model.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "costmodel/memory.h"
#include "costmodel/node_groups.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kTokenStep = 128;
/// Beyond any memory; keeps the conversion from double defined.
constexpr double kMostTokens = 1e12;

const SchemeCoefficients* find_row(const CostModel& model, const Scheme& scheme) {
  if (scheme.group >= group_count(model.cluster)) return nullptr;
  for (const SchemeCoefficients& row : model.profile.schemes) {
    if (row.scheme.cp == scheme.cp && row.scheme.tp == scheme.tp && row.scheme.pp == scheme.pp &&
        row.scheme.recompute == scheme.recompute) {
      return &row;
    }
  }
  return nullptr;
}

void add(StageCost& sum, const StageCost& more, double times = 1) {
  sum.a += times * more.a;
  sum.b += times * more.b;
  sum.c += times * more.c;
}

/// One pass of a stage out of its parts.
StageCost sum_of(const StageParts& parts, StageCost StageParts::Part::*pass, int layers, bool first,
                 bool last) {
  StageCost sum;
  add(sum, parts.layer.*pass, layers);
  add(sum, parts.stage.*pass);
  if (first) add(sum, parts.first.*pass);
  if (last) add(sum, parts.last.*pass);
  return sum;
}

/// As long as a group's devices take for what takes those of the profile that long.
StageCost on_group(const StageCost& cost, const CostModel& model, const Scheme& scheme) {
  if (model.cluster.groups.empty()) return cost;
  const double speed = node_group(model.cluster, scheme.group).relative_speed;
  return {cost.a / speed, cost.b / speed, cost.c / speed};
}

int layers_of(const CostModel& model, const Scheme& scheme, int stage) {
  if (stage < 0 || stage >= scheme.pp) {
    throw InputError("scheme {}: asked for stage {}, it has {}", to_string(scheme), stage,
                     scheme.pp);
  }
  return stage_layers(scheme, model.model.layers)[static_cast<std::size_t>(stage)];
}

}  // namespace

std::vector<Scheme> known_schemes(const CostModel& model) {
  std::vector<Scheme> schemes;
  for (int group = 0; group < group_count(model.cluster); ++group) {
    const int devices = group_devices(model.cluster, group);
    for (const SchemeCoefficients& row : model.profile.schemes) {
      if (row.scheme.devices() > devices || row.scheme.pp > model.model.layers) continue;
      schemes.push_back(row.scheme);
      schemes.back().group = group;
    }
  }
  return schemes;
}

NumberBytes number_bytes(int element_bytes) {
  if (element_bytes < 4) return {};
  const double bytes = element_bytes;
  return {bytes, bytes, bytes, bytes, 4 * bytes};
}

std::optional<StageCost> stage_cost(const CostModel& model, const Scheme& scheme, int stage) {
  return layers_cost(model, scheme, layers_of(model, scheme, stage), stage == 0,
                     stage == scheme.pp - 1);
}

std::optional<StageCost> forward_cost(const CostModel& model, const Scheme& scheme, int stage) {
  return layers_forward_cost(model, scheme, layers_of(model, scheme, stage), stage == 0,
                             stage == scheme.pp - 1);
}

std::optional<StageCost> layers_cost(const CostModel& model, const Scheme& scheme, int layers,
                                     bool first, bool last) {
  const SchemeCoefficients* row = find_row(model, scheme);
  if (row == nullptr) return std::nullopt;
  if (row->parts) {
    StageCost cost = sum_of(*row->parts, &StageParts::Part::forward, layers, first, last);
    add(cost, sum_of(*row->parts, &StageParts::Part::backward, layers, first, last));
    return on_group(cost, model, scheme);
  }
  StageCost cost = on_group({row->a, row->b, row->c}, model, scheme);
  if (layers * scheme.pp == model.model.layers) return cost;
  // The row is for an even split; a stage with more layers takes as much more.
  const double share = static_cast<double>(layers) * scheme.pp / model.model.layers;
  cost.a *= share;
  cost.b *= share;
  cost.c *= share;
  return cost;
}

std::optional<StageCost> layers_forward_cost(const CostModel& model, const Scheme& scheme,
                                             int layers, bool first, bool last) {
  const SchemeCoefficients* row = find_row(model, scheme);
  if (row == nullptr || !row->parts) return std::nullopt;
  return on_group(sum_of(*row->parts, &StageParts::Part::forward, layers, first, last), model,
                  scheme);
}

std::string beyond_measurements(const CostModel& model, double tokens, double length) {
  const Profile& profile = model.profile;
  std::string text;
  if (profile.measured_length > 0 && length > profile.measured_length) {
    text = fmt::format("sequences of up to {:.0f} tokens, {:.0f} were measured", length,
                       profile.measured_length);
  }
  if (profile.measured_tokens > 0 && tokens > profile.measured_tokens) {
    text += fmt::format("{}micro-batches of up to {:.0f} tokens a device, {:.0f} were measured",
                        text.empty() ? "" : "; ", tokens, profile.measured_tokens);
  }
  if (text.empty()) return text;
  return "times are extrapolated: " + text;
}

double required_bytes(const CostModel& model, const Scheme& scheme, double tokens, int in_flight) {
  if (model.memory == MemoryModel::published) {
    const auto line = detail::published_memory(model, scheme);
    if (!line) return std::numeric_limits<double>::infinity();
    return line->fixed_bytes + line->bytes_per_token * tokens;
  }
  double most = 0;
  for (int stage = 0; stage < scheme.pp; ++stage) {
    const double live = detail::live_micro_batches(scheme, stage, in_flight) * tokens;
    most = std::max(most, stage_memory(model, scheme, stage, live, tokens).total());
  }
  return most;
}

std::int64_t max_tokens(const CostModel& model, const Scheme& scheme, int in_flight) {
  const double limit = memory_limit_bytes(model, scheme.group);
  double tokens = kMostTokens;
  if (model.memory == MemoryModel::published) {
    const auto line = detail::published_memory(model, scheme);
    if (!line) return 0;
    tokens = (limit - line->fixed_bytes) / line->bytes_per_token;
  } else {
    // Bytes grow linearly with the tokens of a micro-batch, so two points give the whole line.
    for (int stage = 0; stage < scheme.pp; ++stage) {
      const int live = detail::live_micro_batches(scheme, stage, in_flight);
      const double fixed = stage_memory(model, scheme, stage, 0, 0).total();
      const double with_step =
          stage_memory(model, scheme, stage, static_cast<double>(live * kTokenStep), kTokenStep)
              .total();
      tokens = std::min(tokens, (limit - fixed) / (with_step - fixed) * kTokenStep);
    }
  }
  if (!(tokens >= kTokenStep)) return 0;
  const auto whole = static_cast<std::int64_t>(std::min(tokens, kMostTokens));
  return whole / kTokenStep * kTokenStep;
}

double memory_limit_bytes(const CostModel& model, int group) {
  const PublishedMemory& memory = model.profile.memory;
  double bound = node_group(model.cluster, group).device.memory_bytes;
  if (memory.device_bound_bytes > 0) {
    // A bound that was found on the first group's devices is one of theirs.
    const double other = bound - model.cluster.device.memory_bytes;
    bound = std::min(bound, memory.device_bound_bytes + other);
  }
  return bound - memory.safety_bytes;
}

}  // namespace hydraulis
