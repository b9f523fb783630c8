#include "planner/packing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/bubble.h"
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

/// Numbers of micro-batches worth trying: from the fewest that fit, ordered by the bound
/// φ(p,v)·(W+v·c) that no packing with v of them can beat.
std::vector<int> bin_counts(std::int64_t fewest, std::int64_t items, double work_seconds,
                            double constant, int stages, int most) {
  std::vector<std::pair<double, int>> counts;
  for (std::int64_t v = fewest; v <= std::max(items, fewest); ++v) {
    const double bound =
        least_bubble_factor(stages, v) * (work_seconds + static_cast<double>(v) * constant);
    counts.emplace_back(bound, static_cast<int>(v));
    if (static_cast<int>(counts.size()) > most && bound > counts.front().first) break;
  }
  std::stable_sort(counts.begin(), counts.end());
  if (static_cast<int>(counts.size()) > most) counts.resize(static_cast<std::size_t>(most));
  std::vector<int> result;
  for (const auto& [bound, count] : counts) result.push_back(count);
  return result;
}

/// Shares of v micro-batches in running order whose 1F1B makespan is near the least possible: the
/// first `rise` grow by (p+1)/(p−1) each, the last shrink the drain (the shape of the optimal
/// linear programs of experiments/derive_bubble_table.py). `constant_share` is what each has at
/// least.
std::vector<double> ramp_shares(int count, int stages, int rise, double constant_share) {
  std::vector<double> shares(static_cast<std::size_t>(count), 1.0);
  const double growth = (stages + 1.0) / (stages - 1.0);
  double size = 1;
  for (int j = std::min(rise, count - 1) - 1; j >= 0; --j) shares[j] = size /= growth;
  double lack = 1.0 / stages;
  for (int j = count - 1; j >= rise && j >= 0; --j) {
    shares[j] -= lack;
    lack *= (stages - 1.0) / stages;
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  // A micro-batch's time is its share of the work plus the constant; give back what is constant.
  double kept = 0;
  for (double& share : shares) {
    share = std::max(0.0, share / sum * (1 + count * constant_share) - constant_share);
    kept += share;
  }
  for (double& share : shares) share /= kept;
  return shares;
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
  const auto evenly = [](int count) { return std::vector<double>(count, 1.0 / count); };
  if (stages == 1) {
    // Time is a plain sum; even micro-batches only leave more memory free.
    Bins even = pack_to_shares(items.sizes, items.weights, pipeline.max_tokens,
                               evenly(static_cast<int>(fewest.size())));
    best.bins = even.empty() ? std::move(fewest) : std::move(even);
  } else {
    const double work = std::accumulate(items.weights.begin(), items.weights.end(), 0.0);
    best = ordered(items, fewest, constant, stages, effort.order_evaluations);
    const auto consider = [&](const std::vector<double>& shares) {
      Bins bins = pack_to_shares(items.sizes, items.weights, pipeline.max_tokens, shares);
      if (bins.empty()) return;
      std::erase_if(bins, [](const auto& bin) { return bin.empty(); });
      Packing candidate;
      const std::vector<double> seconds = bin_seconds(items, bins, constant);
      candidate.seconds = OneForwardOneBackward(stages).makespan(seconds);
      candidate.bins = std::move(bins);
      if (candidate.seconds < best.seconds) best = std::move(candidate);
    };
    for (const int count : bin_counts(static_cast<std::int64_t>(fewest.size()),
                                      static_cast<std::int64_t>(sequences.size()), work, constant,
                                      stages, effort.bin_counts)) {
      consider(evenly(count));
      for (int rise = 0; rise <= 3 && rise < count; ++rise) {
        consider(ramp_shares(count, stages, rise, constant / work));
      }
    }
    best = ordered(items, std::move(best.bins), constant, stages, effort.order_evaluations);
    if (effort.polish_evaluations > 0) polish(items, pipeline, effort.polish_evaluations, best);
  }
  for (const auto& bin : best.bins) {
    plan.micro_batches.push_back(make_micro_batch(items, sequences, bin));
  }
  plan.time_seconds = pipeline_makespan(pipeline, plan.micro_batches);
  return plan;
}

}  // namespace hydraulis
