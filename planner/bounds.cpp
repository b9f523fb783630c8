#include "planner/bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace hydraulis {
namespace {

/// Pipelines of one scheme.
struct Group {
  const PipelineCost* cost = nullptr;
  int count = 0;
  double least_seconds_per_token = 0;
};

/// Distinct lengths with their numbers.
struct LengthCount {
  std::int64_t length = 0;
  double count = 0;
};

struct Multipliers {
  double work = 0;    ///< α
  double tokens = 0;  ///< β
};

/// The stage the bound is proved on. Where stages differ the element-wise maximum is no real stage
/// and would prove too much, so the stage with the most time per token stands for the pipeline.
StageCost binding_stage(const PipelineCost& cost) {
  if (cost.uniform_stages()) return cost.slowest;
  return *std::max_element(cost.stages.begin(), cost.stages.end(),
                           [](const StageCost& x, const StageCost& y) { return x.b < y.b; });
}

class Bound {
 public:
  Bound(std::span<const PipelineCost> pipelines, std::span<const Sequence> sequences) {
    std::vector<std::int64_t> lengths;
    for (const Sequence& sequence : sequences) lengths.push_back(sequence.length);
    std::sort(lengths.begin(), lengths.end());
    for (const std::int64_t length : lengths) {
      if (lengths_.empty() || lengths_.back().length != length) lengths_.push_back({length, 0});
      lengths_.back().count += 1;
    }
    for (const PipelineCost& pipeline : pipelines) {
      const auto same = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) {
        return group.cost->scheme == pipeline.scheme &&
               group.cost->max_tokens == pipeline.max_tokens;
      });
      if (same != groups_.end()) {
        ++same->count;
      } else {
        groups_.push_back({&pipeline, 1, 0});
        stages_.push_back(binding_stage(pipeline));
      }
    }
    const std::size_t cells = groups_.size() * lengths_.size();
    seconds_.resize(cells);
    tokens_.resize(cells);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t i = 0; i < lengths_.size(); ++i) {
        const auto s = static_cast<double>(lengths_[i].length);
        const std::int64_t padded = groups_[g].cost->padded(lengths_[i].length);
        const auto tokens = static_cast<double>(padded);
        const bool fits = padded <= groups_[g].cost->max_tokens;
        seconds_[g * lengths_.size() + i] = fits ? stages_[g].a * s * s + stages_[g].b * tokens
                                                 : std::numeric_limits<double>::infinity();
        tokens_[g * lengths_.size() + i] = tokens;
        if (fits) least = std::min(least, seconds_[g * lengths_.size() + i] / tokens);
      }
      groups_[g].least_seconds_per_token = least;
    }
  }

  double compute() {
    if (lengths_.empty()) return 0;
    double bound = single_sequence();
    if (!std::isfinite(bound)) return bound;
    // Start from multipliers that price work by devices alone, with and without token prices.
    std::vector<Multipliers> at(groups_.size());
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const double cap = static_cast<double>(groups_[g].cost->max_tokens);
      at[g].work = groups_[g].cost->scheme.devices();
      at[g].tokens = cap > 0 ? 0.5 * at[g].work * stages_[g].c / cap : 0;
    }
    bound = std::max(bound, refine(at, bound));
    return bound;
  }

 private:
  /// The longest sequence passes every stage of some pipeline.
  double single_sequence() const {
    double bound = 0;
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t g = 0; g < groups_.size(); ++g) {
        const StageCost& stage = stages_[g];
        // Unequal stages: only the binding stage is certain to take this long.
        const int passes = groups_[g].cost->uniform_stages() ? groups_[g].cost->scheme.pp : 1;
        least = std::min(least, passes * (seconds_[g * lengths_.size() + i] + stage.c));
      }
      bound = std::max(bound, least);
    }
    return bound;
  }

  double demand(const std::vector<Multipliers>& at) const {
    double sum = 0;
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t g = 0; g < groups_.size(); ++g) {
        const std::size_t cell = g * lengths_.size() + i;
        if (!std::isfinite(seconds_[cell])) continue;
        least = std::min(least, at[g].work * seconds_[cell] + at[g].tokens * tokens_[cell]);
      }
      sum += lengths_[i].count * least;
    }
    return sum;
  }

  /// Most that one pipeline of the group can contribute within T.
  double supply(std::size_t g, const Multipliers& price, double T) const {
    const Group& group = groups_[g];
    const double c = stages_[g].c;
    const bool uniform = group.cost->uniform_stages();
    const int p = uniform ? group.cost->scheme.pp : 1;
    const double cap = static_cast<double>(group.cost->max_tokens);
    double best = 0;
    double idle = 1;  // (1−1/p)^v
    constexpr int kMostMicroBatches = 100000;
    for (int v = 1; v <= kMostMicroBatches; ++v) {
      idle *= 1 - 1.0 / p;
      const double ceiling = std::min(T * (1 - idle), T - (p - 1) * c);
      const double work = ceiling - v * c;
      if (work <= 0) {
        // With more stages the geometric term still grows; with one, nothing more fits.
        if (p == 1 || T - (p - 1) * c - v * c <= 0) break;
        continue;
      }
      const double tokens = std::min(v * cap, work / group.least_seconds_per_token);
      best = std::max(best, price.work * work + price.tokens * tokens);
      // Once tokens are no longer limited by memory and the ceiling is flat, more only costs.
      if (v * cap >= work / group.least_seconds_per_token && T * idle < 1e-3 * c) break;
      if (p == 1 && v * cap >= work / group.least_seconds_per_token) break;
    }
    return best;
  }

  /// Smallest T not excluded by these multipliers, found between `low` and an excluded-free `high`.
  double least_time(const std::vector<Multipliers>& at, double low) const {
    const double need = demand(at);
    const auto excluded = [&](double T) {
      double sum = 0;
      for (std::size_t g = 0; g < groups_.size(); ++g)
        sum += groups_[g].count * supply(g, at[g], T);
      return sum < need * (1 - 1e-12);
    };
    if (!excluded(low)) return low;
    double high = low > 0 ? low : 1e-9;
    while (excluded(high)) {
      low = high;
      high *= 1.3;
    }
    while (high - low > 1e-5 * high) {
      const double middle = 0.5 * (low + high);
      (excluded(middle) ? low : high) = middle;
    }
    return low;
  }

  /// Coordinate search on the logarithms of the multipliers: every point visited is a proof.
  double refine(std::vector<Multipliers>& at, double floor) const {
    double best = least_time(at, floor);
    const auto attempt = [&](double& value, double changed) {
      const double kept = value;
      value = changed;
      const double bound = least_time(at, best);
      if (bound > best) {
        best = bound;
        return true;
      }
      value = kept;
      return false;
    };
    for (double step = 0.3; step > 0.002; step *= 0.5) {
      for (int pass = 0; pass < 3; ++pass) {
        bool moved = false;
        for (std::size_t g = 0; g < groups_.size(); ++g) {
          if (groups_.size() > 1) {
            moved |= attempt(at[g].work, at[g].work * (1 + step)) ||
                     attempt(at[g].work, at[g].work / (1 + step));
          }
          const double unit = at[g].work * groups_[g].least_seconds_per_token;
          if (!std::isfinite(unit)) continue;
          moved |= attempt(at[g].tokens, at[g].tokens + step * 0.2 * unit) ||
                   attempt(at[g].tokens, std::max(0.0, at[g].tokens - step * 0.2 * unit));
        }
        if (!moved) break;
      }
    }
    return best;
  }

  std::vector<Group> groups_;
  std::vector<StageCost> stages_;
  std::vector<LengthCount> lengths_;
  std::vector<double> seconds_;  ///< [group][length]; infinity where it does not fit
  std::vector<double> tokens_;
};

}  // namespace

double makespan_lower_bound(std::span<const PipelineCost> pipelines,
                            std::span<const Sequence> sequences) {
  return Bound(pipelines, sequences).compute();
}

}  // namespace hydraulis
