#include "planner/policies/homogeneous.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "costmodel/derived_schemes.h"
#include "costmodel/node_groups.h"
#include "planner/bounds.h"

namespace hydraulis {
namespace {

std::vector<std::vector<Sequence>> sample_batches(std::span<const Batch> batches) {
  constexpr std::size_t kMostBatches = 16;
  const std::size_t count = std::min(kMostBatches, batches.size());
  std::vector<std::vector<Sequence>> sample;
  for (std::size_t i = 0; i < count; ++i) {
    sample.push_back(sequences_of(batches[i * batches.size() / count]));
  }
  return sample;
}

HomogeneousLayout make_layout(const PolicySetup& setup, const Scheme& scheme) {
  HomogeneousLayout layout;
  layout.model = setup.model;
  const ClusterSpec& cluster = setup.model.cluster;
  // Context-parallel ranks hold the same parameters, so they count as data parallel here.
  layout.model.optimizer = {cluster.devices() / scheme.devices() * scheme.cp, scheme.tp, scheme.pp};
  Strategy strategy;
  for (int group = 0; group < group_count(cluster); ++group) {
    Scheme own = scheme;
    own.group = group;
    strategy.insert(strategy.end(),
                    static_cast<std::size_t>(group_devices(cluster, group) / scheme.devices()),
                    own);
  }
  // The one with least memory stands first: what all hold is what it holds.
  std::ranges::stable_sort(
      strategy, {}, [&](const Scheme& own) { return memory_limit_bytes(layout.model, own.group); });
  StrategySet set;
  set.strategies.push_back(std::move(strategy));
  set.optimizer = layout.model.optimizer;
  layout.prepared = prepare(set, layout.model, setup.assignment);
  return layout;
}

bool fills_groups(const ClusterSpec& cluster, const Scheme& scheme) {
  for (int group = 0; group < group_count(cluster); ++group) {
    if (group_devices(cluster, group) % scheme.devices() != 0) return false;
  }
  return true;
}

}  // namespace

PolicySetup with_rings(PolicySetup setup) {
  add_ring_schemes(setup.model, std::array{2, 4, 8});
  return setup;
}

HomogeneousLayout best_homogeneous_layout(const PolicySetup& setup, const LayoutPlanner& planner) {
  const auto sample = sample_batches(setup.batches);
  const int devices = setup.model.cluster.devices();
  HomogeneousLayout best;
  double best_seconds = std::numeric_limits<double>::infinity();
  int tried = 0;
  std::int64_t longest_held = 0;
  std::string closest = "none divides the cluster";
  for (const Scheme& scheme : known_schemes(setup.model)) {
    if (scheme.group != 0 || !fills_groups(setup.model.cluster, scheme)) continue;
    HomogeneousLayout layout = make_layout(setup, scheme);
    const PipelineCost& pipeline = layout.prepared.pipelines.front().front();
    if (pipeline.max_tokens > longest_held) {
      longest_held = pipeline.max_tokens;
      closest = to_string(layout.prepared.strategies.front());
    }
    if (pipeline.padded(setup.context) > pipeline.max_tokens) continue;
    ++tried;
    double seconds = 0;
    for (const auto& batch : sample) {
      if (seconds >= best_seconds) break;
      const double bound = makespan_lower_bound(layout.prepared.pipelines.front(), batch,
                                                BoundEffort::quick, best_seconds - seconds);
      seconds += seconds + bound >= best_seconds ? bound : planner(batch, layout).makespan_seconds;
    }
    if (seconds < best_seconds) {
      best_seconds = seconds;
      best = std::move(layout);
    }
  }
  const std::int64_t cap = setup.assignment.max_tokens;
  if (tried == 0 && cap > 0 && cap < setup.context) {
    throw InfeasibleError(
        "infeasible: --max-tokens {}: the context has {} tokens, {} more than a micro-batch may "
        "have; raise the cap or lower --context to {}",
        cap, setup.context, setup.context - cap, cap);
  }
  if (tried == 0) {
    throw InfeasibleError(
        "infeasible: memory per micro-batch: no homogeneous layout of {} devices holds {} tokens, "
        "the "
        "context; the longest is {} tokens on {}, {} fewer; lower the context to that or use "
        "devices "
        "with more memory",
        devices, setup.context, longest_held, closest, setup.context - longest_held);
  }
  best.remark =
      fmt::format("{}, best of {} layout{} that hold the context",
                  to_string(best.prepared.strategies.front()), tried, tried == 1 ? "" : "s");
  if (!setup.model.profile.limits.empty())
    best.remark += " among those the profile knows (limits below)";
  return best;
}

}  // namespace hydraulis
