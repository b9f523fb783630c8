#include "planner/schedule_work.h"

#include <algorithm>

#include "base/error.h"

namespace hydraulis {
namespace {

double tokens_of(const MicroBatch& batch) {
  return static_cast<double>(batch.tokens() + batch.padding);
}

std::vector<double> live_limits(const CostModel& model, const Scheme& scheme, double largest) {
  std::vector<double> limits;
  if (model.memory == MemoryModel::published) {
    const auto budget = static_cast<double>(max_tokens(model, scheme)) * scheme.pp;
    limits.assign(static_cast<std::size_t>(scheme.pp), budget);
    return limits;
  }
  // Memory is linear in the live tokens.
  const double limit = memory_limit_bytes(model, scheme.group);
  constexpr double kProbe = 1 << 20;
  for (int stage = 0; stage < scheme.pp; ++stage) {
    const double fixed = stage_memory(model, scheme, stage, 0, largest).total();
    const double a_token =
        (stage_memory(model, scheme, stage, kProbe, largest).total() - fixed) / kProbe;
    limits.push_back(std::max(0.0, (limit - fixed) / a_token));
  }
  return limits;
}

}  // namespace

PassSeconds PassCost::of(double sum_squares, double tokens) const {
  PassSeconds seconds;
  const double all = whole.of(sum_squares, tokens);
  const StageCost& products = forward ? *forward : whole;
  const double linear = products.b * tokens + products.c;
  seconds.forward = forward ? forward->of(sum_squares, tokens) : kForwardShare * all;
  const double backward = all - seconds.forward;
  seconds.backward_weight = std::min(backward, forward ? linear : kForwardShare * linear);
  seconds.backward_input = backward - seconds.backward_weight;
  return seconds;
}

PassCost pass_cost(const CostModel& model, const Scheme& scheme, int layers, bool first,
                   bool last) {
  const auto whole = layers_cost(model, scheme, layers, first, last);
  if (!whole) {
    throw InputError("profile '{}' has no times for the scheme {}", model.profile.name,
                     to_string(scheme));
  }
  return {*whole, layers_forward_cost(model, scheme, layers, first, last)};
}

PassCost pass_cost(const CostModel& model, const Scheme& scheme, int stage) {
  return pass_cost(model, scheme,
                   stage_layers(scheme, model.model.layers).at(static_cast<std::size_t>(stage)),
                   stage == 0, stage == scheme.pp - 1);
}

ScheduleWork schedule_work(const CostModel& model, const Scheme& scheme,
                           std::span<const MicroBatch> micro_batches,
                           const ScheduleChoice& choice) {
  const std::vector<int> layers = virtual_stage_layers(scheme, model.model.layers, choice.chunks);
  const std::vector<int> held = stage_layers(scheme, model.model.layers);
  ScheduleWork work;
  work.stages = scheme.pp;
  work.chunks = choice.chunks;
  work.micro_batches = static_cast<int>(micro_batches.size());
  double largest = 0;
  for (const MicroBatch& batch : micro_batches) {
    work.tokens.push_back(tokens_of(batch));
    largest = std::max(largest, work.tokens.back());
  }
  const int last = work.virtual_stages() - 1;
  for (int v = 0; v <= last; ++v) {
    const int count = layers[static_cast<std::size_t>(v)];
    work.share.push_back(static_cast<double>(count) /
                         held[static_cast<std::size_t>(v % scheme.pp)]);
    const PassCost cost = pass_cost(model, scheme, count, v == 0, v == last);
    for (std::size_t j = 0; j < micro_batches.size(); ++j) {
      work.seconds.push_back(cost.of(micro_batches[j].sum_squares(), work.tokens[j]));
    }
  }
  if (needs_times(choice.schedule)) work.most_alive = live_limits(model, scheme, largest);
  return work;
}

ScheduleWork reordered(const ScheduleWork& work, std::span<const int> order) {
  ScheduleWork result = work;
  for (std::size_t j = 0; j < order.size(); ++j) {
    result.tokens[j] = work.tokens[static_cast<std::size_t>(order[j])];
    for (int v = 0; v < work.virtual_stages(); ++v) {
      result.seconds[static_cast<std::size_t>(v) * order.size() + j] = work.at(v, order[j]);
    }
  }
  return result;
}

ScheduleWork even_work(int stages, int chunks, std::span<const PassSeconds> micro_batches) {
  ScheduleWork work;
  work.stages = stages;
  work.chunks = chunks;
  work.micro_batches = static_cast<int>(micro_batches.size());
  for (int v = 0; v < work.virtual_stages(); ++v) {
    work.share.push_back(1.0 / chunks);
    work.seconds.insert(work.seconds.end(), micro_batches.begin(), micro_batches.end());
  }
  work.tokens.assign(micro_batches.size(), 1);
  return work;
}

}  // namespace hydraulis
