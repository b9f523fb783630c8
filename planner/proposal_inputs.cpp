#include <algorithm>
#include <chrono>
#include <limits>

#include "base/error.h"
#include "costmodel/node_groups.h"
#include "planner/proposal.h"
#include "planner/proposal_groups.h"

namespace hydraulis {

std::vector<SchemeOption> scheme_options(const CostModel& model, std::int64_t max_tokens_cap) {
  if (max_tokens_cap < 0) {
    throw InputError("cap on a micro-batch: {} tokens, expected 0 (no cap) or more",
                     max_tokens_cap);
  }
  std::vector<SchemeOption> options;
  for (const Scheme& scheme : known_schemes(model)) {
    SchemeOption option{scheme, {}, max_tokens(model, scheme)};
    if (max_tokens_cap > 0) option.max_tokens = std::min(option.max_tokens, max_tokens_cap);
    bool known = true;
    for (int stage = 0; stage < scheme.pp && known; ++stage) {
      const auto cost = stage_cost(model, scheme, stage);
      known = cost.has_value();
      if (!known) break;
      // Stages differ by their share of layers, so the slowest has the largest of each coefficient.
      option.cost.a = std::max(option.cost.a, cost->a);
      option.cost.b = std::max(option.cost.b, cost->b);
      option.cost.c = std::max(option.cost.c, cost->c);
    }
    if (known) options.push_back(std::move(option));
  }
  return options;
}

std::vector<LengthCount> length_histogram(const LengthTrace& trace, std::int64_t context,
                                          std::int64_t tokens_per_batch) {
  if (trace.lengths.empty()) throw InputError("trace {}: holds no sequences", trace.source);
  if (context < 1) throw InputError("context: {} tokens, expected at least 1", context);
  if (tokens_per_batch < 0) {
    throw InputError("tokens per batch: {}, expected 0 (the whole trace) or more",
                     tokens_per_batch);
  }
  const auto longest = static_cast<std::uint32_t>(
      std::min<std::int64_t>(context, std::numeric_limits<std::uint32_t>::max()));
  std::vector<std::uint32_t> lengths(trace.lengths.size());
  std::transform(trace.lengths.begin(), trace.lengths.end(), lengths.begin(),
                 [&](std::uint32_t length) { return std::min(length, longest); });
  std::sort(lengths.begin(), lengths.end());
  std::vector<LengthCount> histogram;
  double tokens = 0;
  for (const std::uint32_t length : lengths) {
    if (length == 0) continue;
    if (histogram.empty() || histogram.back().length != length) histogram.push_back({length, 0});
    histogram.back().count += 1;
    tokens += length;
  }
  if (histogram.empty()) throw InputError("trace {}: every sequence is empty", trace.source);
  if (tokens_per_batch > 0) {
    const double scale = static_cast<double>(tokens_per_batch) / tokens;
    for (LengthCount& entry : histogram) entry.count *= scale;
  }
  return histogram;
}

namespace {

/// The published objective charges the constant of a micro-batch to every sequence, as if none were
/// packed together. Real micro-batches are filled, so a second search spreads it over the tokens of
/// a full one.
void spread_constants(std::vector<SchemeOption>& schemes) {
  for (SchemeOption& option : schemes) {
    if (option.max_tokens <= 0) continue;
    option.cost.b += option.cost.c / static_cast<double>(option.max_tokens);
    option.cost.c = 0;
  }
}

/// On unlike nodes: `upto` and `bottleneck` are left out, for sets are thinned by real batches.
Proposal propose_on_groups(ProposalProblem problem, const ClusterSpec& cluster) {
  const auto start = std::chrono::steady_clock::now();
  GroupProblem groups;
  groups.problem = std::move(problem);
  for (int g = 0; g < group_count(cluster); ++g) {
    groups.group_devices.push_back(group_devices(cluster, g));
  }
  Proposal proposal;
  proposal.set.optimizer = groups.problem.optimizer;
  proposal.set.strategies = propose_over_groups(groups);
  spread_constants(groups.problem.schemes);
  for (Strategy& strategy : propose_over_groups(groups)) {
    auto& strategies = proposal.set.strategies;
    if (std::ranges::find(strategies, strategy) == strategies.end()) {
      strategies.push_back(std::move(strategy));
    }
  }
  proposal.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return proposal;
}

}  // namespace

Proposal propose(const LengthTrace& trace, const CostModel& model, const ProposalOptions& options) {
  ProposalProblem problem;
  problem.context = options.context;
  problem.histogram = length_histogram(trace, options.context, options.tokens_per_batch);
  problem.schemes = scheme_options(model, options.max_tokens_cap);
  problem.devices = model.cluster.devices();
  problem.optimizer = model.optimizer;
  // 128 tokens, the grain of max_tokens(), up to 512 grid points; coarser beyond.
  problem.length_step = options.length_step != 0
                            ? options.length_step
                            : 128 * std::max<std::int64_t>(1, (options.context + 65535) / 65536);
  // The search does not grow with the number of devices, so there is no reason for a coarser step.
  problem.device_step = options.device_step != 0 ? options.device_step : 1;
  problem.max_strategies = options.max_strategies;
  if (!model.cluster.groups.empty()) return propose_on_groups(std::move(problem), model.cluster);
  Proposal proposal = propose_strategies(problem);
  // The set holds the strategies of both searches and every iteration picks what suits it.
  spread_constants(problem.schemes);
  const Proposal packed = propose_strategies(problem);
  proposal.seconds += packed.seconds;
  for (std::size_t i = 0; i < packed.set.strategies.size(); ++i) {
    auto& strategies = proposal.set.strategies;
    const Strategy& strategy = packed.set.strategies[i];
    if (std::find(strategies.begin(), strategies.end(), strategy) != strategies.end()) continue;
    strategies.push_back(strategy);
    proposal.upto.push_back(packed.upto[i]);
    proposal.bottleneck.push_back(packed.bottleneck[i]);
  }
  // A scheme is dropped only when neither search has a use for it.
  std::erase_if(proposal.dropped, [&](const DroppedScheme& dropped) {
    return std::none_of(packed.dropped.begin(), packed.dropped.end(),
                        [&](const DroppedScheme& other) { return other.scheme == dropped.scheme; });
  });
  return proposal;
}

}  // namespace hydraulis
