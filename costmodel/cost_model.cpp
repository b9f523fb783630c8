#include "costmodel/cost_model.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "costmodel/memory.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kTokenStep = 128;
/// Beyond any memory; keeps the conversion from double defined.
constexpr double kMostTokens = 1e12;

const SchemeCoefficients* find_row(const Profile& profile, const Scheme& scheme) {
  for (const SchemeCoefficients& row : profile.schemes) {
    if (row.scheme.cp == scheme.cp && row.scheme.tp == scheme.tp && row.scheme.pp == scheme.pp &&
        row.scheme.recompute == scheme.recompute) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<Scheme> known_schemes(const CostModel& model) {
  std::vector<Scheme> schemes;
  for (const SchemeCoefficients& row : model.profile.schemes) {
    if (row.scheme.devices() <= model.cluster.devices() && row.scheme.pp <= model.model.layers) {
      schemes.push_back(row.scheme);
    }
  }
  return schemes;
}

std::optional<StageCost> stage_cost(const CostModel& model, const Scheme& scheme, int stage) {
  const SchemeCoefficients* row = find_row(model.profile, scheme);
  if (row == nullptr) return std::nullopt;
  if (stage < 0 || stage >= scheme.pp) {
    throw InputError("scheme {}: asked for stage {}, it has {}", to_string(scheme), stage,
                     scheme.pp);
  }
  StageCost cost{row->a, row->b, row->c};
  if (scheme.layers.empty() && model.model.layers % scheme.pp == 0) return cost;
  // The row is for an even split; a stage with more layers takes as much more.
  const int layers = stage_layers(scheme, model.model.layers)[static_cast<std::size_t>(stage)];
  const double share = static_cast<double>(layers) * scheme.pp / model.model.layers;
  cost.a *= share;
  cost.b *= share;
  cost.c *= share;
  return cost;
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
  const double limit = memory_limit_bytes(model);
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

double memory_limit_bytes(const CostModel& model) {
  const PublishedMemory& memory = model.profile.memory;
  double bound = model.cluster.device.memory_bytes;
  if (memory.device_bound_bytes > 0) bound = std::min(bound, memory.device_bound_bytes);
  return bound - memory.safety_bytes;
}

}  // namespace hydraulis
