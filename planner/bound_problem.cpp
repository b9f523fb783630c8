#include <algorithm>
#include <limits>

#include "planner/bounds_detail.h"

namespace hydraulis::detail {
namespace {

/// Where stages differ the element-wise maximum is no real stage and would prove too much, so the
/// stage with the most time per token stands for the pipeline.
StageCost binding_stage(const PipelineCost& cost) {
  if (cost.uniform_stages()) return cost.slowest;
  return *std::max_element(cost.stages.begin(), cost.stages.end(),
                           [](const StageCost& x, const StageCost& y) { return x.b < y.b; });
}

}  // namespace

BoundProblem::BoundProblem(std::span<const PipelineCost> pipelines,
                           std::span<const Sequence> sequences) {
  constexpr std::size_t kMostItems = 1'000'000'000;
  items = static_cast<int>(std::min(sequences.size(), kMostItems));
  std::vector<std::int64_t> sorted;
  for (const Sequence& sequence : sequences) sorted.push_back(sequence.length);
  std::sort(sorted.begin(), sorted.end());
  for (const std::int64_t length : sorted) {
    if (lengths.empty() || lengths.back().length != length) lengths.push_back({length, 0});
    lengths.back().count += 1;
  }
  for (const PipelineCost& pipeline : pipelines) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const BoundGroup& group) {
      return group.cost->scheme == pipeline.scheme && group.cost->max_tokens == pipeline.max_tokens;
    });
    if (same != groups.end()) {
      ++same->count;
    } else {
      groups.push_back({&pipeline, 1, 0});
      stages.push_back(binding_stage(pipeline));
    }
  }
  seconds.resize(groups.size() * lengths.size());
  tokens.resize(seconds.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto s = static_cast<double>(lengths[i].length);
      const std::int64_t padded = groups[g].cost->padded(lengths[i].length);
      const auto size = static_cast<double>(padded);
      const bool fits = padded <= groups[g].cost->max_tokens;
      seconds[cell(g, i)] =
          fits ? stages[g].a * s * s + stages[g].b * size : std::numeric_limits<double>::infinity();
      tokens[cell(g, i)] = size;
      if (fits) least = std::min(least, seconds[cell(g, i)] / size);
    }
    groups[g].least_seconds_per_token = least;
  }
}

}  // namespace hydraulis::detail
