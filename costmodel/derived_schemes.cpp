#include "costmodel/derived_schemes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "costmodel/analytic.h"

namespace hydraulis {
namespace {

/// Share of a stage's time that recomputation adds: the forward once more.
constexpr double kAgain = 1 + kForwardShare;

StageCost scaled(const StageCost& cost, double work, double constant) {
  return {cost.a * work, cost.b * work, cost.c * constant};
}

SchemeCoefficients scaled(const SchemeCoefficients& row, double work, double constant) {
  SchemeCoefficients result = row;
  const StageCost whole = scaled(StageCost{row.a, row.b, row.c}, work, constant);
  result.a = whole.a;
  result.b = whole.b;
  result.c = whole.c;
  if (!result.parts) return result;
  for (StageParts::Part* part :
       {&result.parts->layer, &result.parts->stage, &result.parts->first, &result.parts->last}) {
    part->forward = scaled(part->forward, work, constant);
    part->backward = scaled(part->backward, work, constant);
  }
  return result;
}

/// A ring's traffic, a third of it in the forward.
void add_ring(SchemeCoefficients& row, const CostModel& model) {
  const StageCost ring = detail::ring_attention_traffic(model.model, model.cluster, row.scheme);
  row.b += ring.b;
  row.c += ring.c;
  if (!row.parts) return;
  const double layers = static_cast<double>(model.model.layers) / row.scheme.pp;
  StageParts::Part& layer = row.parts->layer;
  for (auto [part, share] : {std::pair{&layer.forward, kForwardShare / layers},
                             std::pair{&layer.backward, (1 - kForwardShare) / layers}}) {
    part->b += share * ring.b;
    part->c += share * ring.c;
  }
}

/// Norm outputs and gated products made again in the backward: 2 norms that read and write h bf16
/// numbers a token, a product that reads 2 f and writes f, split over tensor and context ranks.
void add_selective(SchemeCoefficients& row, const CostModel& model) {
  constexpr double kBf16 = 2;
  const double numbers = 4.0 * model.model.hidden + 3.0 * model.model.ffn_hidden;
  const double layer = kBf16 * numbers / (row.scheme.tp * row.scheme.cp) /
                       model.cluster.device.memory_bandwidth_bytes_per_second;
  row.b += layer * model.model.layers / row.scheme.pp;
  if (row.parts) row.parts->layer.backward.b += layer;
}

bool knows(const Profile& profile, const Scheme& scheme) {
  return std::any_of(profile.schemes.begin(), profile.schemes.end(),
                     [&](const SchemeCoefficients& row) { return row.scheme == scheme; });
}

/// The whole model on one device, or nothing.
std::optional<SchemeCoefficients> one_device(const Profile& profile) {
  std::optional<SchemeCoefficients> best;
  const bool measured = !profile.analytic && !profile.operators;
  for (const SchemeCoefficients& row : profile.schemes) {
    const Scheme& scheme = row.scheme;
    if (scheme.cp != 1 || scheme.tp != 1 || scheme.recompute != Recompute::none) continue;
    if (!measured && scheme.pp != 1) continue;
    if (!best || scheme.pp > best->scheme.pp) best = row;
  }
  if (!best) return best;
  const double stages = best->scheme.pp;
  *best = scaled(*best, stages, stages);
  best->scheme = {};
  return best;
}

}  // namespace

void add_ring_schemes(CostModel& model, std::span<const int> degrees) {
  Profile& profile = model.profile;
  const std::size_t known = profile.schemes.size();
  bool added = false;
  for (const int cp : degrees) {
    for (std::size_t i = 0; i < known; ++i) {
      Scheme scheme = profile.schemes[i].scheme;
      if (scheme.cp != 1) continue;
      scheme.cp = cp;
      if (scheme.devices() > model.cluster.devices() || knows(profile, scheme)) continue;
      SchemeCoefficients row = scaled(profile.schemes[i], 1.0 / cp, 1);
      row.scheme = scheme;
      add_ring(row, model);
      profile.schemes.push_back(std::move(row));
      added = true;
    }
  }
  if (added) {
    profile.limits.push_back(
        "context parallelism derived: a cp-th of the times without it, and ring traffic over the "
        "cluster's links without overlap");
  }
}

void add_recompute_schemes(CostModel& model) {
  Profile& profile = model.profile;
  const std::size_t known = profile.schemes.size();
  bool added = false;
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    for (std::size_t i = 0; i < known; ++i) {
      Scheme scheme = profile.schemes[i].scheme;
      if (scheme.recompute != Recompute::none) continue;
      scheme.recompute = recompute;
      if (knows(profile, scheme)) continue;
      SchemeCoefficients row = profile.schemes[i];
      if (recompute == Recompute::full) {
        row = scaled(row, kAgain, kAgain);
      } else {
        add_selective(row, model);
      }
      row.scheme = scheme;
      profile.schemes.push_back(std::move(row));
      added = true;
    }
  }
  if (added) {
    profile.limits.push_back(
        "recomputation derived: full runs the forward once more (a third of the time), selective "
        "the norms and the gated product at the data sheet's memory bandwidth");
  }
}

CostModel sharded_model(const CostModel& model, std::span<const int> degrees,
                        ContextExchange exchange) {
  const auto one = one_device(model.profile);
  if (!one) {
    throw InfeasibleError(
        "profile '{}': has no times without tensor and context parallelism, which sharded "
        "parameters are derived from",
        model.profile.name);
  }
  CostModel result = model;
  result.sharding = ParameterSharding::sharded;
  result.context_exchange = exchange;
  result.memory = MemoryModel::composed;
  result.optimizer = {model.cluster.devices(), 1, 1};
  result.profile.schemes.clear();
  for (const int cp : degrees) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      const double again = recompute == Recompute::full ? kAgain : 1;
      SchemeCoefficients row = scaled(*one, again / cp, again);
      row.scheme.cp = cp;
      row.scheme.recompute = recompute;
      if (exchange == ContextExchange::ring) add_ring(row, result);
      result.profile.schemes.push_back(std::move(row));
    }
  }
  result.profile.limits.push_back(fmt::format(
      "sharded parameters derived: times of the whole model on one device, divided by the context "
      "parallelism; gathers, reductions{} on top",
      exchange == ContextExchange::all_to_all ? " and all-to-alls" : ""));
  return result;
}

}  // namespace hydraulis
