#include "planner/packing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/schedule.h"

namespace hydraulis {
namespace {

using Bins = std::vector<std::vector<int>>;

struct Items {
  std::vector<std::int64_t> sizes;  ///< tokens with padding
  std::vector<double> weights;      ///< seconds on the slowest stage
};

MicroBatch make_micro_batch(const Items& items, std::span<const Sequence> sequences,
                            const std::vector<int>& bin) {
  MicroBatch micro_batch;
  micro_batch.sequence_ids.reserve(bin.size());
  micro_batch.lengths.reserve(bin.size());
  for (const int item : bin) {
    const Sequence& sequence = sequences[static_cast<std::size_t>(item)];
    micro_batch.sequence_ids.push_back(sequence.id);
    micro_batch.lengths.push_back(sequence.length);
    micro_batch.padding += static_cast<std::uint64_t>(items.sizes[item] - sequence.length);
  }
  return micro_batch;
}

std::vector<double> bin_seconds(const Items& items, const Bins& bins, double constant) {
  std::vector<double> seconds;
  seconds.reserve(bins.size());
  for (const auto& bin : bins) {
    double sum = constant;
    for (const int item : bin) sum += items.weights[item];
    seconds.push_back(sum);
  }
  return seconds;
}

/// A candidate packing in running order, judged by the recurrence on the slowest stage.
struct Packing {
  Bins bins;
  double seconds = 0;
};

Packing ordered(const Items& items, Bins bins, double constant, int stages, int work) {
  Packing result;
  const std::vector<double> seconds = bin_seconds(items, bins, constant);
  const std::vector<int> order = order_micro_batches(seconds, stages, work, &result.seconds);
  result.bins.reserve(bins.size());
  for (const int bin : order) result.bins.push_back(std::move(bins[static_cast<std::size_t>(bin)]));
  return result;
}

/// Moves single sequences between micro-batches while the schedule gets shorter.
void polish(const Items& items, const PipelineCost& pipeline, int work, Packing& packing) {
  const double constant = pipeline.slowest.c;
  std::vector<double> seconds = bin_seconds(items, packing.bins, constant);
  std::vector<std::int64_t> used;
  for (const auto& bin : packing.bins) {
    std::int64_t sum = 0;
    for (const int item : bin) sum += items.sizes[item];
    used.push_back(sum);
  }
  OneForwardOneBackward schedule(pipeline.scheme.pp);
  bool improved = true;
  while (improved && work > 0) {
    improved = false;
    for (std::size_t from = 0; from < packing.bins.size() && work > 0; ++from) {
      for (std::size_t k = 0; k < packing.bins[from].size() && work > 0; ++k) {
        const int item = packing.bins[from][k];
        if (packing.bins[from].size() == 1) break;
        for (std::size_t to = 0; to < packing.bins.size() && work > 0; ++to) {
          if (to == from || used[to] + items.sizes[item] > pipeline.max_tokens) continue;
          seconds[from] -= items.weights[item];
          seconds[to] += items.weights[item];
          const double value = schedule.makespan(seconds);
          --work;
          if (value < packing.seconds * (1 - 1e-9)) {
            packing.seconds = value;
            used[from] -= items.sizes[item];
            used[to] += items.sizes[item];
            packing.bins[to].push_back(item);
            packing.bins[from].erase(packing.bins[from].begin() + static_cast<std::ptrdiff_t>(k));
            improved = true;
            --k;
            break;
          }
          seconds[from] += items.weights[item];
          seconds[to] -= items.weights[item];
        }
      }
    }
  }
}

/// Numbers of micro-batches worth trying, from the fewest that fit to past the smooth optimum.
std::vector<int> bin_counts(std::int64_t fewest, std::int64_t items, double work_seconds,
                            double constant, int stages, int most) {
  double optimum = static_cast<double>(items);
  if (constant > 0) optimum = std::sqrt((stages - 1) * work_seconds / constant);
  std::int64_t high = static_cast<std::int64_t>(std::min(optimum * 1.5, 1e9)) + stages + 1;
  high = std::clamp(high, fewest, std::max(items, fewest));
  std::vector<int> counts;
  const std::int64_t span = high - fewest + 1;
  const std::int64_t step = std::max<std::int64_t>(1, (span + most - 1) / most);
  for (std::int64_t v = fewest; v <= high; v += step) counts.push_back(static_cast<int>(v));
  return counts;
}

}  // namespace

PipelinePlan pack_pipeline(const PipelineCost& pipeline, std::span<const Sequence> sequences,
                           const PackingEffort& effort) {
  PipelinePlan plan;
  plan.scheme = pipeline.scheme;
  if (sequences.empty()) return plan;
  Items items;
  for (const Sequence& sequence : sequences) {
    items.sizes.push_back(pipeline.padded(sequence.length));
    items.weights.push_back(pipeline.sequence_seconds(sequence.length));
  }
  const double constant = pipeline.slowest.c;
  const int stages = pipeline.scheme.pp;
  Bins fewest = pack_fewest_bins(items.sizes, pipeline.max_tokens);
  Packing best;
  if (stages == 1) {
    // Time is a plain sum; even micro-batches only leave more memory free.
    Bins even = pack_balanced(items.sizes, items.weights, pipeline.max_tokens,
                              static_cast<int>(fewest.size()));
    best.bins = even.empty() ? std::move(fewest) : std::move(even);
  } else {
    const double work = std::accumulate(items.weights.begin(), items.weights.end(), 0.0);
    best = ordered(items, fewest, constant, stages, effort.order_evaluations);
    for (const int count : bin_counts(static_cast<std::int64_t>(fewest.size()),
                                      static_cast<std::int64_t>(sequences.size()), work, constant,
                                      stages, effort.bin_counts)) {
      Bins bins = pack_balanced(items.sizes, items.weights, pipeline.max_tokens, count);
      if (bins.empty()) continue;
      std::erase_if(bins, [](const auto& bin) { return bin.empty(); });
      Packing candidate =
          ordered(items, std::move(bins), constant, stages, effort.order_evaluations);
      if (candidate.seconds < best.seconds) best = std::move(candidate);
    }
    if (effort.polish_evaluations > 0) polish(items, pipeline, effort.polish_evaluations, best);
  }
  for (const auto& bin : best.bins) {
    plan.micro_batches.push_back(make_micro_batch(items, sequences, bin));
  }
  plan.time_seconds = pipeline_makespan(pipeline, plan.micro_batches);
  return plan;
}

}  // namespace hydraulis
