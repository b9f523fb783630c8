#include "sim/tune_select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

namespace hydraulis {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kNoGain = 1 - 1e-9;  ///< relative: what is not better than this is no better

/// Sets of at most `most` out of `pool`; kMostExhaustedSets + 1 when more.
std::uint64_t count_sets(std::size_t pool, int most) {
  std::uint64_t sum = 0;
  std::uint64_t ways = 1;
  for (std::size_t k = 1; k <= std::min<std::size_t>(pool, static_cast<std::size_t>(most)); ++k) {
    ways = ways * (pool - k + 1) / k;
    sum += ways;
    if (sum > kMostExhaustedSets) return kMostExhaustedSets + 1;
  }
  return sum;
}

/// Searches sets of one pool. Members are numbers within the pool.
class SetSearch {
 public:
  SetSearch(const TuneTable& table, std::span<const int> pool, std::size_t batches,
            std::int64_t context)
      : batches_(batches), pool_(pool.begin(), pool.end()) {
    for (const int s : pool_) {
      holds_.push_back(table.holds(s, context) ? 1 : 0);
      for (std::size_t b = 0; b < batches; ++b) {
        const TuneCell& cell = table.cell(s, b);
        planned_.push_back(cell.planned);
        simulated_.push_back(cell.simulated);
      }
    }
  }

  /// Infinity when nothing in it holds the context.
  double seconds(std::span<const int> members) const {
    if (std::none_of(members.begin(), members.end(), [this](int m) { return holds_[at(m)]; })) {
      return kNever;
    }
    double sum = 0;
    for (std::size_t b = 0; b < batches_; ++b) {
      double least = kNever;
      double takes = kNever;
      for (const int m : members) {
        if (planned_[at(m) * batches_ + b] < least) {
          least = planned_[at(m) * batches_ + b];
          takes = simulated_[at(m) * batches_ + b];
        }
      }
      sum += takes;
    }
    return sum;
  }

  int size() const { return static_cast<int>(pool_.size()); }

  TuneChoice choice(std::vector<int> members) const {
    std::sort(members.begin(), members.end());
    TuneChoice result;
    result.seconds = seconds(members);
    for (const int m : members) result.strategies.push_back(pool_[at(m)]);
    return result;
  }

  /// Adds what helps most; false when nothing is left or nothing is feasible.
  bool add(std::vector<int>& members, double& now) const {
    int best = -1;
    double best_seconds = kNever;
    for (int m = 0; m < size(); ++m) {
      if (std::find(members.begin(), members.end(), m) != members.end()) continue;
      members.push_back(m);
      const double with = seconds(members);
      members.pop_back();
      if (with < best_seconds) {
        best = m;
        best_seconds = with;
      }
    }
    if (best < 0) return false;
    members.push_back(best);
    now = best_seconds;
    return true;
  }

  /// Exchanges one member for another strategy while that helps.
  void exchange(std::vector<int>& members, double& now) const {
    for (bool improved = true; improved;) {
      improved = false;
      for (int& member : members) {
        const int before = member;
        int best = before;
        double best_seconds = now * kNoGain;
        for (int m = 0; m < size(); ++m) {
          if (std::find(members.begin(), members.end(), m) != members.end()) continue;
          member = m;
          const double with = seconds(members);
          if (with < best_seconds) {
            best = m;
            best_seconds = with;
          }
          member = before;
        }
        if (best != before) {
          member = best;
          now = best_seconds;
          improved = true;
        }
      }
    }
  }

 private:
  static std::size_t at(int member) { return static_cast<std::size_t>(member); }

  std::size_t batches_;
  std::vector<int> pool_;
  std::vector<char> holds_;
  std::vector<double> planned_;    ///< [member][batch]
  std::vector<double> simulated_;  ///< [member][batch]
};

void try_all(const SetSearch& search, std::size_t size, std::vector<int>& members, int from,
             std::vector<int>& best, double& best_seconds) {
  if (members.size() == size) {
    const double seconds = search.seconds(members);
    if (seconds < best_seconds) {
      best_seconds = seconds;
      best = members;
    }
    return;
  }
  for (int m = from; m < search.size(); ++m) {
    members.push_back(m);
    try_all(search, size, members, m + 1, best, best_seconds);
    members.pop_back();
  }
}

/// The best set of one size by addition and exchange, from the best smaller set and, for small
/// sizes, from each of the strategies.
std::vector<int> climb(const SetSearch& search, std::size_t size, const std::vector<int>& smaller,
                       double& best_seconds) {
  constexpr std::size_t kMostStartedEverywhere = 3;
  std::vector<std::vector<int>> starts{smaller};
  if (size <= kMostStartedEverywhere) {
    for (int m = 0; m < search.size(); ++m) starts.push_back({m});
  }
  std::vector<int> best;
  best_seconds = kNever;
  for (std::vector<int>& members : starts) {
    double now = search.seconds(members);
    while (members.size() < size && search.add(members, now)) {
    }
    if (members.size() < size || !std::isfinite(now)) continue;
    search.exchange(members, now);
    if (now < best_seconds) {
      best_seconds = now;
      best = members;
    }
  }
  return best;
}

}  // namespace

int chosen_strategy(const TuneTable& table, std::span<const int> set, std::size_t batch) {
  int chosen = -1;
  double least = kNever;
  for (const int s : set) {
    const double planned = table.cell(s, batch).planned;
    if (planned < least) {
      least = planned;
      chosen = s;
    }
  }
  return chosen;
}

double set_seconds(const TuneTable& table, std::span<const int> set, std::size_t batches) {
  double sum = 0;
  for (std::size_t b = 0; b < batches; ++b) {
    const int chosen = chosen_strategy(table, set, b);
    if (chosen < 0) return kNever;
    sum += table.cell(chosen, b).simulated;
  }
  return sum;
}

std::vector<TuneChoice> choose_sets(const TuneTable& table, std::span<const int> pool,
                                    std::size_t batches, std::int64_t context, int most) {
  const SetSearch search(table, pool, batches, context);
  const bool exhaust = count_sets(pool.size(), most) <= kMostExhaustedSets;
  std::vector<TuneChoice> result;
  std::vector<int> smaller;
  double smaller_seconds = kNever;
  for (std::size_t size = 1;
       size <= std::min<std::size_t>(pool.size(), static_cast<std::size_t>(most)); ++size) {
    double seconds = kNever;
    std::vector<int> best;
    if (exhaust) {
      std::vector<int> members;
      try_all(search, size, members, 0, best, seconds);
    } else {
      best = climb(search, size, smaller, seconds);
    }
    if (best.empty()) continue;
    if (!(seconds < smaller_seconds * kNoGain)) {
      if (!exhaust) break;  // what helps no more when it is added will not help later
      continue;
    }
    smaller = best;
    smaller_seconds = seconds;
    result.push_back(search.choice(best));
  }
  return result;
}

std::vector<int> promising(const TuneTable& table, std::span<const int> pool, std::size_t batches,
                           std::int64_t context, std::size_t keep) {
  const SetSearch search(table, pool, batches, context);
  std::vector<int> members;
  double now = kNever;
  constexpr std::size_t kMostGreedy = 16;
  while (members.size() < std::min(keep, kMostGreedy)) {
    const double before = now;
    if (!search.add(members, now)) break;
    if (!(now < before * kNoGain)) {
      members.pop_back();
      break;
    }
  }
  // Within this share of a batch's best, a strategy earns part of a point.
  constexpr double kClose = 0.03;
  std::vector<std::tuple<double, int>> scores;  // greater is better; ties by index
  std::vector<double> best(batches, kNever);
  for (const int s : pool) {
    for (std::size_t b = 0; b < batches; ++b) {
      best[b] = std::min(best[b], table.cell(s, b).planned);
    }
  }
  for (int m = 0; m < search.size(); ++m) {
    double score = 0;
    for (std::size_t b = 0; b < batches; ++b) {
      const double planned = table.cell(pool[static_cast<std::size_t>(m)], b).planned;
      if (!std::isfinite(planned)) continue;
      score += std::max(0.0, 1 - (planned / best[b] - 1) / kClose);
    }
    scores.emplace_back(-score, m);
  }
  std::sort(scores.begin(), scores.end());
  for (const auto& [score, m] : scores) {
    if (members.size() >= keep) break;
    if (std::find(members.begin(), members.end(), m) == members.end()) members.push_back(m);
  }
  std::vector<int> result;
  for (const int m : members) result.push_back(pool[static_cast<std::size_t>(m)]);
  return result;
}

}  // namespace hydraulis
