#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "planner/bounds_detail.h"
#include "planner/bubble.h"

namespace hydraulis::detail {
namespace {

/// What a pipeline can take within T at one number of micro-batches.
struct Load {
  double work = 0;
  double tokens = 0;
};

/// Refutes makespans. For a time T a tree of cases says which pipeline each of the longest
/// sequences goes to; a case falls when prices exist at which all sequences are worth more than all
/// pipelines can take, or when a pipeline cannot do what it was given. T is impossible when every
/// case falls.
class Refutation {
 public:
  Refutation(const BoundProblem& problem, std::vector<Prices> prices)
      : problem_(problem), prices_(std::move(prices)) {
    for (std::size_t i = problem_.lengths.size(); i-- > 0;) {
      for (int copy = 0; copy < problem_.lengths[i].count && longest_.size() < kMostPlaced;
           ++copy) {
        longest_.push_back(i);
      }
    }
    placed_work_.resize(problem_.groups.size());
    first_.resize(problem_.groups.size());
    for (std::size_t g = 0; g < problem_.groups.size(); ++g) {
      first_[g] = static_cast<int>(members_.size());
      const int count = problem_.stage_count(g) > 1 ? problem_.groups[g].count : 0;
      for (int k = 0; k < count; ++k) members_.push_back({});
    }
    loads_.resize(problem_.groups.size() * kCaches);
  }

  bool refuted(double T, int cases) {
    T_ = T;
    cases_left_ = cases;
    for (auto* loads : used_) loads->clear();
    used_.clear();
    std::vector<Prices> by_devices(prices_.size());
    for (std::size_t g = 0; g < prices_.size(); ++g) {
      by_devices[g].work = problem_.groups[g].cost->scheme.devices();
    }
    return fall(0, excess(by_devices) > excess(prices_) ? by_devices : prices_);
  }

 private:
  static constexpr std::size_t kMostPlaced = 8;
  static constexpr std::size_t kMostLong = 3;
  static constexpr int kNone = static_cast<int>(kMostPlaced);
  static constexpr std::size_t kCaches = (kNone + 1) * (kNone + 1) * (kNone + 1);

  /// The longest sequences placed on a pipeline, as indices into longest_, kNone where there are
  /// fewer.
  using Longest = std::array<int, kMostLong>;
  static constexpr Longest kEmpty = {kNone, kNone, kNone};

  struct Member {
    Longest longest = kEmpty;
    double work = 0;  ///< of what was placed
  };

  double seconds(std::size_t g, int placed) const {
    return problem_.seconds[problem_.cell(g, longest_[static_cast<std::size_t>(placed)])];
  }

  /// All that a pipeline of the group can take whose longest sequences are the given ones; only
  /// loads that can be best at some prices.
  const std::vector<Load>& loads(std::size_t g, const Longest& longest) {
    const int cache = (longest[0] * (kNone + 1) + longest[1]) * (kNone + 1) + longest[2];
    std::vector<Load>& result = loads_[g * kCaches + static_cast<std::size_t>(cache)];
    if (!result.empty()) return result;
    used_.push_back(&result);
    const double c = problem_.stages[g].c;
    const double cap = static_cast<double>(problem_.groups[g].cost->max_tokens);
    const double rate = problem_.groups[g].least_seconds_per_token;
    const int p = problem_.stage_count(g);
    const double most = T_ - (p - 1) * c;
    // Together in one micro-batch they share its constant.
    std::array<double, kMostLong> long_seconds{};
    std::size_t known = 0;
    for (; known < kMostLong && longest[known] != kNone; ++known) {
      long_seconds[known] = seconds(g, longest[known]) + (known == 0 ? c : 0);
    }
    const std::span<const double> longs(long_seconds.data(), known);
    result.push_back({});
    for (int v = 1; v <= problem_.items; ++v) {
      if (most - v * c <= 0) break;
      const double ceiling = std::min(most, most_work(p, v, T_, longs));
      const double work = ceiling - v * c;
      if (work > 0) result.push_back({work, std::min(v * cap, work / rate)});
      // Once memory does not limit the load and the bubble is nearly gone, more micro-batches only
      // cost constants.
      if (work <= 0 || v * cap < work / rate) continue;
      const double bubble = std::min(most, T_) - ceiling;
      if (bubble <= c) break;
      if (bubble < 1e-6 * T_) {
        result.push_back({ceiling + bubble - v * c, (ceiling + bubble - v * c) / rate});
        break;
      }
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < result.size(); ++i) {
      const bool beaten = std::any_of(result.begin(), result.end(), [&](const Load& other) {
        return other.work >= result[i].work && other.tokens >= result[i].tokens &&
               (other.work > result[i].work || other.tokens > result[i].tokens);
      });
      if (!beaten) result[kept++] = result[i];
    }
    result.resize(kept);
    return result;
  }

  double supply_of(std::size_t g, const Longest& longest, const Prices& price) {
    double best = 0;
    for (const Load& load : loads(g, longest)) {
      best = std::max(best, price.work * load.work + price.tokens * load.tokens);
    }
    return best;
  }

  double supply(const std::vector<Prices>& prices) {
    double sum = 0;
    for (std::size_t g = 0; g < problem_.groups.size(); ++g) {
      if (problem_.stage_count(g) == 1) {
        sum += problem_.groups[g].count * supply_of(g, kEmpty, prices[g]);
        continue;
      }
      for (int k = 0; k < problem_.groups[g].count; ++k) {
        const Longest& longest = members_[static_cast<std::size_t>(first_[g] + k)].longest;
        const double value = supply_of(g, longest, prices[g]);
        if (longest == kEmpty) {  // as all that follow
          sum += (problem_.groups[g].count - k) * value;
          break;
        }
        sum += value;
      }
    }
    return sum;
  }

  double worth(const std::vector<Prices>& prices, std::size_t g, std::size_t length) const {
    const std::size_t cell = problem_.cell(g, length);
    if (!std::isfinite(problem_.seconds[cell])) return std::numeric_limits<double>::infinity();
    return prices[g].work * problem_.seconds[cell] + prices[g].tokens * problem_.tokens[cell];
  }
  double least_worth(const std::vector<Prices>& prices, std::size_t length) const {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t g = 0; g < problem_.groups.size(); ++g) {
      least = std::min(least, worth(prices, g, length));
    }
    return least;
  }
  double worth_of_all(const std::vector<Prices>& prices) const {
    double sum = 0;
    for (std::size_t i = 0; i < problem_.lengths.size(); ++i) {
      sum += problem_.lengths[i].count * least_worth(prices, i);
    }
    return sum;
  }

  /// By how much the sequences' worth exceeds what the pipelines can take, as a share of it.
  double excess(const std::vector<Prices>& prices) {
    double need = worth_of_all(prices);
    for (std::size_t i = 0; i < placed_in_.size(); ++i) {
      need += worth(prices, placed_in_[i], longest_[i]) - least_worth(prices, longest_[i]);
    }
    const double take = supply(prices);
    return take > 0 ? need / take - 1 : need > 0 ? 1 : -1;
  }

  /// Improves the prices for the present case until they refute it or no step helps.
  bool prices_refute(std::vector<Prices>& prices) {
    for (std::size_t g = 0; g < prices.size(); ++g) {
      // A price of nothing cannot grow by factors.
      if (prices[g].work <= 0) prices[g].work = 1e-3 * problem_.groups[g].cost->scheme.devices();
    }
    constexpr double kMargin = 1e-9;
    double best = excess(prices);
    for (double step = 0.25; step > 0.004 && best <= kMargin; step *= 0.5) {
      bool moved = true;
      for (int pass = 0; pass < 3 && moved && best <= kMargin; ++pass) {
        moved = false;
        const auto attempt = [&](double& value, double changed) {
          const double kept = value;
          value = changed;
          const double now = excess(prices);
          if (now > best) {
            best = now;
            moved = true;
            return true;
          }
          value = kept;
          return false;
        };
        for (std::size_t g = 0; g < prices.size() && best <= kMargin; ++g) {
          const double unit = prices[g].work * problem_.groups[g].least_seconds_per_token;
          if (!std::isfinite(unit)) continue;
          if (prices.size() > 1) {
            attempt(prices[g].work, prices[g].work * (1 + step)) ||
                attempt(prices[g].work, prices[g].work / (1 + step));
          }
          attempt(prices[g].tokens, prices[g].tokens + step * 0.2 * unit) ||
              attempt(prices[g].tokens, std::max(0.0, prices[g].tokens - step * 0.2 * unit));
        }
      }
    }
    return best > kMargin;
  }

  /// Whether the case of the sequences placed so far falls, if need be by cases of the next one.
  bool fall(int placed, std::vector<Prices> prices) {
    if (--cases_left_ < 0) return false;
    if (prices_refute(prices)) return true;
    if (placed == static_cast<int>(longest_.size())) return false;
    bool all = true;
    for (std::size_t g = 0; g < problem_.groups.size() && all; ++g) {
      if (!std::isfinite(seconds(g, placed))) continue;
      const double work = seconds(g, placed);
      placed_in_.push_back(g);
      if (problem_.stage_count(g) == 1) {
        // Which of them does not matter, but together they must be able to do it.
        placed_work_[g] += work;
        const double room = T_ - problem_.stages[g].c;
        if (placed_work_[g] <= problem_.groups[g].count * room) all = fall(placed + 1, prices);
        placed_work_[g] -= work;
      } else {
        bool empty_tried = false;
        for (int k = 0; k < problem_.groups[g].count && all; ++k) {
          Member& member = members_[static_cast<std::size_t>(first_[g] + k)];
          if (member.longest == kEmpty) {
            if (empty_tried) break;  // empty ones are alike
            empty_tried = true;
          }
          const Member kept = member;
          const auto free = std::find(member.longest.begin(), member.longest.end(), kNone);
          if (free != member.longest.end()) *free = placed;
          member.work += work;
          double most = 0;
          for (const Load& load : loads(g, member.longest)) most = std::max(most, load.work);
          if (member.work <= most) all = fall(placed + 1, prices);
          member = kept;
        }
      }
      placed_in_.pop_back();
    }
    return all;
  }

  const BoundProblem& problem_;
  const std::vector<Prices> prices_;
  std::vector<std::size_t> longest_;    ///< lengths of the sequences that are placed, longest first
  std::vector<std::size_t> placed_in_;  ///< group by placed sequence
  std::vector<double> placed_work_;     ///< by group of single stages
  std::vector<Member> members_;         ///< pipelines of several stages
  std::vector<int> first_;              ///< by group, its first in members_
  std::vector<std::vector<Load>*> used_;
  std::vector<std::vector<Load>> loads_;  ///< [group][longest], for the present T
  double T_ = 0;
  int cases_left_ = 0;
};

}  // namespace

double long_sequence_bound(const BoundProblem& problem, std::vector<Prices> prices, double known,
                           double enough) {
  Refutation refutation(problem, std::move(prices));
  constexpr int kProbes = 6;
  constexpr int kMostCases = 600;
  double high = enough;
  double low = known;
  if (refutation.refuted(low + 0.95 * (high - low), kMostCases)) return low + 0.95 * (high - low);
  for (int probe = 0; probe < kProbes; ++probe) {
    const double middle = 0.5 * (low + high);
    (refutation.refuted(middle, kMostCases) ? low : high) = middle;
  }
  return low;
}

}  // namespace hydraulis::detail
