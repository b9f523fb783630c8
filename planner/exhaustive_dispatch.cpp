#include "planner/exhaustive_dispatch.h"

#include <algorithm>
#include <limits>

namespace hydraulis {
namespace {

/// Seconds of every subset on the pipeline; infinity where a sequence does not fit.
std::vector<double> subset_seconds(const PipelineCost& pipeline,
                                   std::span<const Sequence> sequences,
                                   const PackingEffort& effort) {
  std::vector<double> seconds(std::size_t{1} << sequences.size());
  std::vector<Sequence> chosen;
  for (std::size_t subset = 1; subset < seconds.size(); ++subset) {
    chosen.clear();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      if ((subset >> i & 1) != 0) chosen.push_back(sequences[i]);
    }
    const bool fits = std::all_of(chosen.begin(), chosen.end(), [&](const Sequence& sequence) {
      return pipeline.padded(sequence.length) <= pipeline.max_tokens;
    });
    seconds[subset] = fits ? pack_pipeline(pipeline, chosen, effort).time_seconds
                           : std::numeric_limits<double>::infinity();
  }
  return seconds;
}

}  // namespace

bool few_enough_to_exhaust(std::span<const PipelineCost> pipelines, std::size_t sequences) {
  constexpr std::size_t kMost = 9;
  constexpr std::size_t kMostOfStages = 6;  // packing takes longer there
  constexpr std::size_t kMostPipelines = 16;
  const bool staged = std::any_of(pipelines.begin(), pipelines.end(),
                                  [](const PipelineCost& p) { return p.scheme.pp > 1; });
  return sequences <= (staged ? kMostOfStages : kMost) && pipelines.size() <= kMostPipelines;
}

std::vector<std::vector<int>> dispatch_exhaustively(std::span<const PipelineCost> pipelines,
                                                    std::span<const Sequence> sequences,
                                                    const PackingEffort& effort) {
  const std::size_t subsets = std::size_t{1} << sequences.size();
  // least[k][all]: the first k+1 pipelines share `all`; mine[k][all]: what pipeline k takes of it.
  std::vector<std::vector<double>> least;
  std::vector<std::vector<std::size_t>> mine;
  std::vector<double> seconds;
  for (std::size_t k = 0; k < pipelines.size(); ++k) {
    const bool alike = k > 0 && pipelines[k].scheme == pipelines[k - 1].scheme &&
                       pipelines[k].max_tokens == pipelines[k - 1].max_tokens;
    if (!alike) seconds = subset_seconds(pipelines[k], sequences, effort);
    std::vector<double> best(subsets, std::numeric_limits<double>::infinity());
    std::vector<std::size_t> taken(subsets, 0);
    for (std::size_t all = 0; all < subsets; ++all) {
      if (k == 0) {
        best[all] = seconds[all];
        taken[all] = all;
        continue;
      }
      for (std::size_t part = all;; part = (part - 1) & all) {
        const double value = std::max(seconds[part], least.back()[all & ~part]);
        if (value < best[all]) {
          best[all] = value;
          taken[all] = part;
        }
        if (part == 0) break;
      }
    }
    least.push_back(std::move(best));
    mine.push_back(std::move(taken));
  }
  std::vector<std::vector<int>> result(pipelines.size());
  std::size_t left = subsets - 1;
  for (std::size_t k = pipelines.size(); k-- > 0;) {
    const std::size_t part = mine[k][left];
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      if ((part >> i & 1) != 0) result[k].push_back(static_cast<int>(i));
    }
    left &= ~part;
  }
  return result;
}

}  // namespace hydraulis
