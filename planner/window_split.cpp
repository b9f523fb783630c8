#include "planner/window_split.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "planner/bounds.h"
#include "planner/thin_set.h"

namespace hydraulis {
namespace {

using Batches = std::vector<std::vector<Sequence>>;

/// What must be gained for sequences to leave their batch.
constexpr double kWorthMoving = 0.998;
/// Lengths above which sequences may count as long.
constexpr std::size_t kMostTiers = 6;
/// Ways that are assigned to be compared, the best by lower bounds.
constexpr std::size_t kMostAssigned = 4;

std::uint64_t tokens_of(std::span<const Sequence> sequences) {
  return std::accumulate(sequences.begin(), sequences.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Sequence& s) { return sum + s.length; });
}

/// The longest sequence that each strategy holds, the longest of all left out.
std::vector<std::int64_t> tiers(const PreparedStrategies& prepared) {
  std::set<std::int64_t> reach;
  for (const auto& pipelines : prepared.pipelines) {
    std::int64_t longest = 0;
    for (const PipelineCost& pipeline : pipelines) longest = std::max(longest, pipeline.max_tokens);
    reach.insert(longest);
  }
  if (!reach.empty()) reach.erase(std::prev(reach.end()));
  std::vector<std::int64_t> result(reach.begin(), reach.end());
  while (result.size() > kMostTiers) {
    for (std::size_t i = 1; i < result.size() && result.size() > kMostTiers; ++i) {
      result.erase(result.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return result;
}

/// Sequences above `tier` in the first `few` batches, the others over what is left of all; nothing
/// when those batches cannot take them.
Batches gathered(std::span<const std::vector<Sequence>> batches, std::int64_t tier, std::size_t few,
                 std::uint64_t budget) {
  std::vector<Sequence> longs;
  std::vector<Sequence> shorts;
  for (const auto& batch : batches) {
    for (const Sequence& sequence : batch) {
      (static_cast<std::int64_t>(sequence.length) > tier ? longs : shorts).push_back(sequence);
    }
  }
  std::ranges::stable_sort(longs, std::greater<>(), &Sequence::length);
  std::ranges::stable_sort(shorts, std::greater<>(), &Sequence::length);
  Batches result(batches.size());
  std::vector<std::uint64_t> tokens(batches.size(), 0);
  const auto give = [&](const Sequence& sequence, std::size_t among) {
    const auto least = static_cast<std::size_t>(
        std::min_element(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(among)) -
        tokens.begin());
    result[least].push_back(sequence);
    tokens[least] += sequence.length;
    return tokens[least] <= budget;
  };
  for (const Sequence& sequence : longs) {
    if (!give(sequence, few)) return {};
  }
  for (const Sequence& sequence : shorts) {
    if (!give(sequence, batches.size())) return {};
  }
  return result;
}

/// A way to deal the sequences, and what it takes by lower bounds.
struct Way {
  Batches batches;
  double least = 0;
};

double least_seconds_of(const Batches& batches, const PreparedStrategies& prepared) {
  double seconds = 0;
  for (const auto& batch : batches) {
    if (!batch.empty()) seconds += least_seconds(batch, prepared);
  }
  return seconds;
}

/// What a way takes when every batch is assigned, with little search.
double assigned_seconds(const Batches& batches, const PreparedStrategies& quick) {
  double seconds = 0;
  for (const auto& batch : batches) {
    if (batch.empty()) continue;
    const BatchPlan plan = assign(batch, quick);
    seconds +=
        plan.makespan_seconds + quick.traffic_seconds[static_cast<std::size_t>(plan.strategy)];
  }
  return seconds;
}

}  // namespace

double least_seconds(std::span<const Sequence> sequences, const PreparedStrategies& prepared) {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t s = 0; s < prepared.pipelines.size(); ++s) {
    const double traffic = prepared.traffic_seconds[s];
    if (traffic >= least) continue;
    least = std::min(least, traffic + makespan_lower_bound(prepared.pipelines[s], sequences,
                                                           BoundEffort::quick, least - traffic));
  }
  return least;
}

std::vector<std::vector<Sequence>> deal_anew(std::span<const std::vector<Sequence>> batches,
                                             const PreparedStrategies& prepared) {
  const Batches drawn(batches.begin(), batches.end());
  if (batches.size() < 2) return drawn;
  std::uint64_t budget = 0;
  for (const auto& batch : batches) budget = std::max(budget, tokens_of(batch));
  std::vector<Way> ways;
  for (const std::int64_t tier : tiers(prepared)) {
    for (std::size_t few = 1; few <= batches.size(); ++few) {
      Batches dealt = gathered(batches, tier, few, budget);
      if (dealt.empty()) continue;
      const double least = least_seconds_of(dealt, prepared);
      ways.push_back({std::move(dealt), least});
    }
  }
  std::ranges::stable_sort(ways, {}, &Way::least);
  if (ways.size() > kMostAssigned) ways.resize(kMostAssigned);
  PreparedStrategies quick = prepared;
  quick.options = without_local_search(prepared.options);
  double least = kWorthMoving * assigned_seconds(drawn, quick);
  const Batches* best = &drawn;
  for (const Way& way : ways) {
    if (way.least >= least) break;
    const double seconds = assigned_seconds(way.batches, quick);
    if (seconds >= least) continue;
    least = seconds;
    best = &way.batches;
  }
  return *best;
}

}  // namespace hydraulis
