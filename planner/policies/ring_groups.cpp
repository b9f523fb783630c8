#include "planner/policies/ring_groups.h"

#include <algorithm>

#include "base/error.h"
#include "costmodel/derived_schemes.h"
#include "planner/packing.h"

namespace hydraulis {

std::vector<RingRanks> ring_ranks(const PolicySetup& setup, bool powers_of_two) {
  std::vector<RingRanks> result;
  std::int64_t longest = 0;
  const int devices = setup.model.cluster.devices();
  for (const Scheme& base : known_schemes(setup.model)) {
    if (base.cp != 1 || base.pp != 1 || devices % base.tp != 0) continue;
    RingRanks ranks;
    ranks.model = setup.model;
    ranks.tp = base.tp;
    ranks.ranks = devices / base.tp;
    ranks.model.optimizer = {ranks.ranks, base.tp, 1};
    std::erase_if(ranks.model.profile.schemes, [&](const SchemeCoefficients& row) {
      const Scheme& scheme = row.scheme;
      return scheme.tp != base.tp || scheme.pp != 1 || scheme.recompute != base.recompute;
    });
    std::vector<int> degrees;
    for (int cp = 2; cp <= ranks.ranks; cp = powers_of_two ? 2 * cp : cp + 1) degrees.push_back(cp);
    add_ring_schemes(ranks.model, degrees);
    degrees.insert(degrees.begin(), 1);
    for (const int cp : degrees) {
      Scheme scheme = base;
      scheme.cp = cp;
      const PipelineCost cost =
          make_pipeline_cost(ranks.model, scheme, setup.assignment.max_tokens);
      longest = std::max(longest, cost.max_tokens);
      if (cost.max_tokens < 1) continue;
      ranks.schemes.push_back(scheme);
      ranks.kinds.push_back({cp, cost.max_tokens, cost.slowest, cp > 1 ? 2 * cp : 1});
    }
    const bool holds = std::any_of(
        ranks.kinds.begin(), ranks.kinds.end(),
        [&](const GroupKind& kind) { return kind.padded(setup.context) <= kind.max_tokens; });
    if (holds) result.push_back(std::move(ranks));
  }
  if (result.empty()) {
    throw InfeasibleError(
        "infeasible: memory per micro-batch: no tensor-parallel degree without pipelines holds {} "
        "tokens, the context, on {} devices, whatever the context parallelism; the longest is {} "
        "tokens, {} fewer; lower the context to that or use devices with more memory",
        setup.context, devices, longest, setup.context - longest);
  }
  return result;
}

void add_groups(BatchPlan& plan, const RingRanks& ranks, std::span<const Sequence> sequences,
                std::span<const SolvedGroup> groups, int phase, PipelineCostTable& costs) {
  int left = ranks.ranks;
  for (const SolvedGroup& group : groups) {
    std::vector<Sequence> own;
    for (const int i : group.sequences) own.push_back(sequences[i]);
    PipelinePlan pipeline = pack_pipeline(costs.of(ranks.schemes[group.kind]), own);
    pipeline.phase = phase;
    plan.pipelines.push_back(std::move(pipeline));
    left -= ranks.kinds[group.kind].size;
  }
  Scheme alone = ranks.schemes.front();
  alone.cp = 1;
  for (; left > 0; --left) plan.pipelines.push_back({alone, {}, 0, phase});
}

}  // namespace hydraulis
