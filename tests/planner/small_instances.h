#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "planner/assignment.h"
#include "planner/packing.h"
#include "planner/schedule.h"

namespace hydraulis::test {

/// Pipeline costs by hand, equal on every stage.
inline PipelineCost make_pipeline(int cp, int tp, int pp, std::int64_t max_tokens, StageCost cost) {
  PipelineCost pipeline;
  pipeline.scheme = {cp, tp, pp, Recompute::none, {}};
  pipeline.stages.assign(static_cast<std::size_t>(pp), cost);
  pipeline.slowest = cost;
  pipeline.max_tokens = max_tokens;
  return pipeline;
}

inline std::vector<Sequence> make_sequences(const std::vector<std::uint32_t>& lengths) {
  std::vector<Sequence> sequences;
  for (std::size_t i = 0; i < lengths.size(); ++i) sequences.push_back({i, lengths[i]});
  return sequences;
}

/// A strategy of hand-made pipelines, ready for assign().
inline PreparedStrategies prepare_by_hand(const std::vector<PipelineCost>& pipelines) {
  PreparedStrategies prepared;
  Strategy strategy;
  for (const PipelineCost& pipeline : pipelines) strategy.push_back(pipeline.scheme);
  prepared.strategies = {strategy};
  prepared.pipelines = {pipelines};
  prepared.traffic_seconds = {0.0};
  return prepared;
}

/// Sequences and pipelines few enough for exhaustive search.
struct SmallInstance {
  std::vector<PipelineCost> pipelines;
  std::vector<Sequence> sequences;

  std::string text() const {
    std::string text = "lengths";
    for (const Sequence& sequence : sequences) text += fmt::format(" {}", sequence.length);
    for (const PipelineCost& p : pipelines) {
      text +=
          fmt::format("; ({},{},{}) cap {}", p.scheme.cp, p.scheme.tp, p.scheme.pp, p.max_tokens);
      for (const StageCost& cost : p.stages) {
        text += fmt::format(" [{:.17g} {:.17g} {:.17g}]", cost.a, cost.b, cost.c);
      }
    }
    return text;
  }
};

/// 1–2 schemes over 2–3 pipelines with caps that hold a few sequences; the longest sequence fits
/// somewhere. `most_stages` 1: no pipelines of several stages.
inline SmallInstance random_instance(Random& random, int most_sequences, int most_stages) {
  SmallInstance instance;
  const auto whole = [&](int low, int high) {
    return low + static_cast<int>(random.below(static_cast<std::uint64_t>(high - low + 1)));
  };
  const int pipelines = whole(2, 3);
  const int schemes = whole(1, 2);
  std::vector<PipelineCost> kinds;
  for (int k = 0; k < schemes; ++k) {
    const int cp = whole(0, 3) == 0 ? 2 : 1;
    const int pp = whole(1, most_stages);
    const double speed = 0.4 + random.uniform();
    const StageCost cost{1e-3 * random.uniform() * speed, 0.1 * speed,
                         whole(0, 4) == 0 ? 0.0 : 3 * random.uniform()};
    kinds.push_back(make_pipeline(cp, k + 1, pp, 4 * whole(5, 25), cost));
    if (whole(0, 3) == 0) {  // stages that differ, as uneven layers make them
      PipelineCost& kind = kinds.back();
      for (StageCost& stage : kind.stages) {
        const double share = 0.6 + 0.4 * random.uniform();
        stage = {cost.a * share, cost.b * share, cost.c * share};
      }
      kind.slowest = {};
      for (const StageCost& stage : kind.stages) {
        kind.slowest.a = std::max(kind.slowest.a, stage.a);
        kind.slowest.b = std::max(kind.slowest.b, stage.b);
        kind.slowest.c = std::max(kind.slowest.c, stage.c);
      }
    }
  }
  std::int64_t longest = 0;
  for (int k = 0; k < pipelines; ++k) {
    instance.pipelines.push_back(kinds[static_cast<std::size_t>(std::min(k, schemes - 1))]);
    longest = std::max(longest, instance.pipelines.back().max_tokens);
  }
  const int sequences = whole(1, most_sequences);
  const bool like = whole(0, 2) == 0;  // lengths around one size: packing is then hardest
  const int middle = whole(2, static_cast<int>(longest) - 1);
  for (int i = 0; i < sequences; ++i) {
    const int length = like ? middle + whole(-2, 2) : whole(1, static_cast<int>(longest));
    instance.sequences.push_back(
        {static_cast<std::uint64_t>(i),
         static_cast<std::uint32_t>(std::clamp(length, 1, static_cast<int>(longest) & ~3))});
  }
  return instance;
}

/// The least time of one pipeline for every subset of the sequences, by trying every packing in
/// every order; infinity for subsets that hold a sequence that does not fit.
class ExhaustivePipeline {
 public:
  ExhaustivePipeline(const PipelineCost& pipeline, const std::vector<Sequence>& sequences)
      : pipeline_(pipeline), schedule_(pipeline.scheme.pp), sequences_(sequences) {
    best_.assign(std::size_t{1} << sequences.size(), std::numeric_limits<double>::infinity());
    best_[0] = 0;
    enumerate(0);
  }
  double seconds(std::size_t subset) const { return best_[subset]; }

 private:
  void enumerate(std::size_t used) {
    const std::size_t all = best_.size() - 1;
    const std::size_t rest = all & ~used;
    for (std::size_t bin = rest; bin > 0; bin = (bin - 1) & rest) {
      double squares = 0;
      std::int64_t padded = 0;
      for (std::size_t i = 0; i < sequences_.size(); ++i) {
        if ((bin >> i & 1) == 0) continue;
        const double s = sequences_[i].length;
        squares += s * s;
        padded += pipeline_.padded(sequences_[i].length);
      }
      if (padded > pipeline_.max_tokens) continue;
      std::vector<double> column;
      for (const StageCost& stage : pipeline_.stages) {
        column.push_back(stage.of(squares, static_cast<double>(padded)));
      }
      columns_.push_back(std::move(column));
      const std::size_t subset = used | bin;
      std::vector<double> by_stage;
      for (std::size_t stage = 0; stage < pipeline_.stages.size(); ++stage) {
        for (const auto& other : columns_) by_stage.push_back(other[stage]);
      }
      best_[subset] = std::min(
          best_[subset], schedule_.makespan_by_stage(by_stage, static_cast<int>(columns_.size())));
      enumerate(subset);
      columns_.pop_back();
    }
  }

  const PipelineCost& pipeline_;
  OneForwardOneBackward schedule_;
  const std::vector<Sequence>& sequences_;
  std::vector<double> best_;
  std::vector<std::vector<double>> columns_;  ///< seconds by stage of each micro-batch
};

/// The least makespan over every assignment, packing and order.
inline double exhaustive_optimum(const SmallInstance& instance) {
  std::vector<double> best;
  for (const PipelineCost& pipeline : instance.pipelines) {
    const ExhaustivePipeline exact(pipeline, instance.sequences);
    const std::size_t subsets = std::size_t{1} << instance.sequences.size();
    std::vector<double> next(subsets, std::numeric_limits<double>::infinity());
    for (std::size_t all = 0; all < subsets; ++all) {
      if (best.empty()) {
        next[all] = exact.seconds(all);
        continue;
      }
      for (std::size_t mine = all;; mine = (mine - 1) & all) {
        next[all] = std::min(next[all], std::max(exact.seconds(mine), best[all & ~mine]));
        if (mine == 0) break;
      }
    }
    best = std::move(next);
  }
  return best.back();
}

}  // namespace hydraulis::test
