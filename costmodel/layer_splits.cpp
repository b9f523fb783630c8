#include "costmodel/layer_splits.h"

#include <algorithm>

#include "costmodel/memory.h"

namespace hydraulis {
namespace {

/// Tokens of a micro-batch that splits are balanced for where memory does not say.
constexpr std::int64_t kReferenceTokens = 4096;

/// The scheme with that many layers on one stage; where the others lie does not matter to it.
Scheme with_stage(Scheme scheme, int stage, int layers, int all) {
  scheme.layers.assign(static_cast<std::size_t>(scheme.pp), 1);
  scheme.layers[static_cast<std::size_t>(stage)] = layers;
  const int left = all - layers - (scheme.pp - 1);
  scheme.layers[stage == 0 ? 1 : 0] += left;
  return scheme;
}

}  // namespace

std::vector<int> balanced_split(int stages, int layers,
                                const std::function<double(int stage, int layers)>& cost) {
  // Layer by layer to the stage that is then cheapest: whoever is raised to the final maximum could
  // not have been spared, for every other stage would have been dearer with that layer.
  std::vector<int> split(static_cast<std::size_t>(stages), 1);
  std::vector<double> next;
  for (int stage = 0; stage < stages; ++stage) next.push_back(cost(stage, 2));
  for (int left = layers - stages; left > 0; --left) {
    const auto cheapest = static_cast<std::size_t>(std::ranges::min_element(next) - next.begin());
    ++split[cheapest];
    next[cheapest] = cost(static_cast<int>(cheapest), split[cheapest] + 1);
  }
  return split;
}

void add_layer_splits(CostModel& model) {
  const std::size_t known = model.profile.schemes.size();
  for (std::size_t i = 0; i < known; ++i) {
    const SchemeCoefficients row = model.profile.schemes[i];
    const Scheme& scheme = row.scheme;
    if (scheme.pp < 2 || scheme.pp > model.model.layers || !scheme.layers.empty()) continue;
    if (scheme.devices() > model.cluster.devices()) continue;
    const auto tokens = static_cast<double>(std::max(max_tokens(model, scheme), kReferenceTokens));
    const auto by_time = [&](double sum_squares) {
      return balanced_split(scheme.pp, model.model.layers, [&](int stage, int layers) {
        const auto cost = layers_cost(model, scheme, layers, stage == 0, stage == scheme.pp - 1);
        return cost->of(sum_squares, tokens);
      });
    };
    std::vector<std::vector<int>> splits;
    if (row.parts) splits = {by_time(0), by_time(tokens * tokens)};
    if (model.memory == MemoryModel::composed) {
      splits.push_back(balanced_split(scheme.pp, model.model.layers, [&](int stage, int layers) {
        const double live = detail::live_micro_batches(scheme, stage, 0) * tokens;
        const int most = model.model.layers - scheme.pp + 1;
        const Scheme trial = with_stage(scheme, stage, std::min(layers, most), model.model.layers);
        return stage_memory(model, trial, stage, live, tokens).total();
      }));
    }
    std::vector<std::vector<int>> seen = {stage_layers(scheme, model.model.layers)};
    for (const std::vector<int>& split : splits) {
      if (std::ranges::find(seen, split) != seen.end()) continue;
      seen.push_back(split);
      SchemeCoefficients uneven = row;
      uneven.scheme.layers = split;
      model.profile.schemes.push_back(std::move(uneven));
    }
  }
}

}  // namespace hydraulis
