#include "planner/bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "planner/bounds_detail.h"
#include "planner/bubble.h"

namespace hydraulis {
namespace {

using detail::BoundGroup;
using detail::BoundProblem;
using detail::LengthCount;
using detail::Prices;

class Bound {
 public:
  explicit Bound(const BoundProblem& problem)
      : problem_(problem),
        groups_(problem.groups),
        stages_(problem.stages),
        lengths_(problem.lengths),
        seconds_(problem.seconds),
        tokens_(problem.tokens),
        items_(problem.items) {
    most_work_in_one_.assign(groups_.size(), std::numeric_limits<double>::infinity());
  }

  double compute(double enough, bool whole_numbers) {
    if (lengths_.empty()) return 0;
    const double single = single_sequence();
    if (!std::isfinite(single)) return single;
    const std::vector<int> unbranched(groups_.size(), -1);
    std::vector<Prices> at;
    double bound = single;
    for (const BoundGroup& smallest : groups_) {
      std::vector<Prices> start = starting_prices(smallest.cost->max_tokens);
      const double value = least_time(start, single, unbranched);
      if (at.empty() || value > bound) {
        bound = value;
        at = std::move(start);
      }
    }
    bound = refine(at, bound, enough, unbranched);
    if (!whole_numbers || bound >= enough) return bound;
    bound = branch(at, bound, enough);
    const bool pipelined = std::any_of(groups_.begin(), groups_.end(), [](const BoundGroup& group) {
      return group.cost->scheme.pp > 1;
    });
    if (!pipelined || !std::isfinite(enough) || bound * kNearEnough >= enough) return bound;
    return detail::long_sequence_bound(problem_, at, bound, enough);
  }

 private:
  /// Prices to start from: work by devices and tokens by what memory makes them cost in constants,
  /// on pipelines that hold at least `least_cap` tokens; nothing on the others, which long
  /// sequences cannot use.
  std::vector<Prices> starting_prices(std::int64_t least_cap) const {
    std::vector<Prices> at(groups_.size());
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const std::int64_t cap = groups_[g].cost->max_tokens;
      if (cap < least_cap || cap <= 0) continue;
      at[g].work = groups_[g].cost->scheme.devices();
      at[g].tokens = 0.5 * at[g].work * stages_[g].c / static_cast<double>(cap);
    }
    return at;
  }

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

  double demand(const std::vector<Prices>& at) const {
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

  /// Most that one pipeline of the group can contribute within T with `low` to `high`
  /// micro-batches.
  double supply(std::size_t g, const Prices& price, double T, int low, int high) const {
    const BoundGroup& group = groups_[g];
    const double c = stages_[g].c;
    const int p = group.cost->uniform_stages() ? group.cost->scheme.pp : 1;
    const double cap = static_cast<double>(group.cost->max_tokens);
    const double most = T - (p - 1) * c;  // what many micro-batches come close to
    double best = 0;
    const auto consider = [&](double work, double tokens) {
      best = std::max(best, price.work * work + price.tokens * tokens);
    };
    // No pipeline has more micro-batches than there are sequences.
    for (int v = low; v <= std::min(high, items_); ++v) {
      if (most - v * c <= 0) break;
      const double ceiling = std::min(T / least_bubble_factor(p, v), most);
      const double room = ceiling - v * c;
      const double work = v == 1 ? std::min(room, most_work_in_one_[g]) : room;
      if (work <= 0) continue;
      consider(work, std::min(v * cap, work / group.least_seconds_per_token));
      // More micro-batches only cost constants once neither memory nor what fits into a single one
      // limits the load and the bubble is nearly gone.
      if (work < room || v * cap < work / group.least_seconds_per_token) continue;
      if (most - ceiling <= c) break;
      if (most - ceiling < 1e-6 * T) {
        const double limit = most - (v + 1) * c;  // where the rest of the bubble would be gone too
        consider(limit, limit / group.least_seconds_per_token);
        break;
      }
    }
    return best;
  }

  /// What all pipelines together can contribute within T. In a branch, `few[g]` pipelines of group
  /// g have at most threshold_[g] micro-batches and the others more.
  double total_supply(const std::vector<Prices>& at, double T, const std::vector<int>& few) const {
    double sum = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (few[g] < 0) {
        sum += groups_[g].count * supply(g, at[g], T, 1, kMostMicroBatches);
        continue;
      }
      if (few[g] > 0) sum += few[g] * supply(g, at[g], T, 1, threshold_[g]);
      if (few[g] < groups_[g].count) {
        sum +=
            (groups_[g].count - few[g]) * supply(g, at[g], T, threshold_[g] + 1, kMostMicroBatches);
      }
    }
    return sum;
  }

  /// Largest T found that these multipliers exclude; at least `low`.
  double least_time(const std::vector<Prices>& at, double low, const std::vector<int>& few) const {
    const double need = demand(at);
    const auto excluded = [&](double T) { return total_supply(at, T, few) < need * (1 - 1e-12); };
    if (!excluded(low)) return low;
    double high = low > 0 ? low : 1e-9;
    // In a branch no time may be enough; a bound this far above the first needs no more proof.
    // Elsewhere some time always is, and stopping short would make starting prices look alike.
    const bool branched = std::any_of(few.begin(), few.end(), [](int count) { return count >= 0; });
    const double limit = (branched ? 2 : 1e12) * high;
    while (excluded(high)) {
      low = high;
      if (high > limit) return low;
      high *= 1.1;
    }
    while (high - low > 1e-5 * high) {
      const double middle = 0.5 * (low + high);
      (excluded(middle) ? low : high) = middle;
    }
    return low;
  }

  /// Coordinate search on the logarithms of the multipliers: every point visited is a proof.
  double refine(std::vector<Prices>& at, double floor, double enough,
                const std::vector<int>& few) const {
    double best = least_time(at, floor, few);
    const auto attempt = [&](double& value, double changed) {
      const double kept = value;
      value = changed;
      const double bound = least_time(at, best, few);
      if (bound > best) {
        best = bound;
        return true;
      }
      value = kept;
      return false;
    };
    for (double step = 0.3; step > 0.002 && best < enough; step *= 0.5) {
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

  /// Most work that whole sequences can bring into one micro-batch: 0/1 knapsack over tokens, with
  /// sizes rounded down to a coarse unit so that the value errs upwards.
  double most_work_in_one(std::size_t g) const {
    constexpr std::int64_t kSlots = 512;
    constexpr double kMostCells = 2e6;
    const std::int64_t cap = groups_[g].cost->max_tokens;
    const std::int64_t unit = std::max<std::int64_t>(1, cap / kSlots);
    const auto slots = static_cast<std::size_t>(cap / unit);
    double items = 0;
    for (const LengthCount& entry : lengths_) items += entry.count;
    if (items * static_cast<double>(slots) > kMostCells) {
      return std::numeric_limits<double>::infinity();
    }
    std::vector<double> value(slots + 1, 0.0);
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const double seconds = seconds_[g * lengths_.size() + i];
      if (!std::isfinite(seconds)) continue;
      const auto size = static_cast<std::size_t>(tokens_[g * lengths_.size() + i]) /
                        static_cast<std::size_t>(unit);
      for (int copy = 0; copy < static_cast<int>(lengths_[i].count); ++copy) {
        for (std::size_t slot = slots; slot + 1 > size; --slot) {
          value[slot] = std::max(value[slot], value[slot - size] + seconds);
          if (slot == 0) break;
        }
      }
    }
    return value[slots];
  }

  /// Whole numbers: splits into cases by how many pipelines of each group have few micro-batches,
  /// and takes the least bound of all cases. Groups are left whole when the cases would be too
  /// many.
  double branch(const std::vector<Prices>& at, double bound, double enough) {
    constexpr int kMostCases = 96;
    for (std::size_t g = 0; g < groups_.size(); ++g) most_work_in_one_[g] = most_work_in_one(g);
    threshold_.assign(groups_.size(), 0);
    std::vector<int> few(groups_.size(), -1);
    int cases = 1;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const double c = stages_[g].c;
      const double cap = static_cast<double>(groups_[g].cost->max_tokens);
      const double tokens = bound / (groups_[g].least_seconds_per_token + c / cap);
      if (!std::isfinite(tokens)) continue;
      const int threshold = static_cast<int>(std::min(tokens / cap, 1000.0));
      if (threshold < 1 || cases * (groups_[g].count + 1) > kMostCases) continue;
      threshold_[g] = threshold;
      few[g] = 0;
      cases *= groups_[g].count + 1;
    }
    if (cases == 1) return bound;
    double least = std::numeric_limits<double>::infinity();
    while (true) {
      std::vector<Prices> start = at;
      least = std::min(least, refine(start, bound, std::min(enough, least), few));
      if (least <= bound) return bound;
      std::size_t g = 0;
      while (g < groups_.size() && (few[g] < 0 || few[g] == groups_[g].count)) {
        if (few[g] > 0) few[g] = 0;
        ++g;
      }
      if (g == groups_.size()) break;
      ++few[g];
    }
    return least;
  }

  static constexpr int kMostMicroBatches = 1'000'000'000;
  static constexpr double kNearEnough = 1.005;  ///< no search for the last half per cent
  const BoundProblem& problem_;
  const std::vector<BoundGroup>& groups_;
  const std::vector<StageCost>& stages_;
  const std::vector<LengthCount>& lengths_;
  const std::vector<double>& seconds_;
  const std::vector<double>& tokens_;
  const int items_;
  std::vector<double> most_work_in_one_;  ///< seconds, by group
  std::vector<int> threshold_;            ///< by group, the branching point of branch()
};

}  // namespace

double makespan_lower_bound(std::span<const PipelineCost> pipelines,
                            std::span<const Sequence> sequences, BoundEffort effort,
                            double enough) {
  const BoundProblem problem(pipelines, sequences);
  return Bound(problem).compute(enough, effort == BoundEffort::whole_numbers);
}

}  // namespace hydraulis
