#include "planner/schedule_search.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "base/random.h"
#include "planner/schedule_list.h"

namespace hydraulis {
namespace {

/// Tries orders and keeps the best, counting the steps that takes.
class Search {
 public:
  Search(const ScheduleChoice& choice, const ScheduleWork& work, std::int64_t steps)
      : choice_(choice), work_(work), left_(steps) {
    const int m = work.micro_batches;
    best_.order.resize(static_cast<std::size_t>(m));
    std::iota(best_.order.begin(), best_.order.end(), 0);
    if (!needs_times(choice.schedule)) steps_ = schedule_steps(choice, work);
    passes_ = static_cast<std::int64_t>(work.virtual_stages()) * m *
              (splits_backward(choice.schedule) ? 3 : 2);
    best_.makespan = std::numeric_limits<double>::infinity();
    best_.makespan = evaluate(best_.order, true);
  }

  bool spent() const { return left_ <= 0; }

  /// Under every rule of list scheduling, or only under the one that the best so far has.
  bool keep_if_better(const std::vector<int>& order, bool every_rule) {
    const double makespan = evaluate(order, every_rule);
    if (!(makespan <= best_.makespan)) return false;
    best_.makespan = makespan;
    best_.order = order;
    return true;
  }

  /// Hill climbing over moves and swaps; equals are taken, which crosses plateaus.
  void climb() {
    Random random(kSeed);
    const auto m = static_cast<std::uint64_t>(best_.order.size());
    while (!spent()) {
      std::vector<int> order = best_.order;
      const auto from = static_cast<std::ptrdiff_t>(random.below(m));
      const auto to = static_cast<std::ptrdiff_t>(random.below(m));
      if (from == to) {
        --left_;
        continue;
      }
      if (random.below(2) == 0) {
        std::swap(order[static_cast<std::size_t>(from)], order[static_cast<std::size_t>(to)]);
      } else if (from < to) {
        std::rotate(order.begin() + from, order.begin() + from + 1, order.begin() + to + 1);
      } else {
        std::rotate(order.begin() + to, order.begin() + from, order.begin() + from + 1);
      }
      keep_if_better(order, false);
    }
  }

  OrderedSchedule finish() {
    best_.steps = steps_ ? *steps_ : schedule_steps(choice_, reordered(work_, best_.order));
    best_.makespan = steps_makespan(reordered(work_, best_.order), best_.steps);
    return std::move(best_);
  }

 private:
  static constexpr std::uint64_t kSeed = 1;

  double evaluate(const std::vector<int>& order, bool every_rule) {
    const ScheduleWork work = reordered(work_, order);
    if (steps_) {
      left_ -= passes_;
      return steps_makespan(work, *steps_);
    }
    const bool split = splits_backward(choice_.schedule);
    left_ -= passes_ * (every_rule ? static_cast<std::int64_t>(kListRules.size()) : 1);
    if (!every_rule) return list_schedule(work, split, rule_).makespan;
    const ListSchedule listed = best_list_schedule(work, split);
    if (!(listed.makespan > best_.makespan)) rule_ = listed.rule;
    return listed.makespan;
  }

  const ScheduleChoice& choice_;
  const ScheduleWork& work_;
  std::int64_t left_;
  std::int64_t passes_ = 0;
  std::optional<StageSteps> steps_;  ///< where they do not depend on the order
  ListRule rule_;                    ///< of the best so far
  OrderedSchedule best_;
};

/// Rising to the middle, falling, ramps of every useful length before falling, rising.
std::vector<std::vector<int>> usual_orders(const ScheduleWork& work) {
  std::vector<double> size(static_cast<std::size_t>(work.micro_batches), 0);
  for (int j = 0; j < work.micro_batches; ++j) {
    for (int v = 0; v < work.virtual_stages(); ++v) {
      size[static_cast<std::size_t>(j)] += work.at(v, j).forward + work.at(v, j).backward();
    }
  }
  std::vector<int> falling(size.size());
  std::iota(falling.begin(), falling.end(), 0);
  std::stable_sort(falling.begin(), falling.end(), [&](int x, int y) {
    return size[static_cast<std::size_t>(x)] > size[static_cast<std::size_t>(y)];
  });
  const std::vector<int> rising(falling.rbegin(), falling.rend());
  std::vector<std::vector<int>> orders;
  const auto m = static_cast<std::ptrdiff_t>(size.size());
  std::vector<int> head, tail;
  for (std::ptrdiff_t j = 0; j < m; ++j) (j % 2 == 0 ? head : tail).push_back(rising[j]);
  head.insert(head.end(), tail.rbegin(), tail.rend());
  orders.push_back(std::move(head));
  orders.push_back(falling);
  // From long ramps to short ones.
  for (std::ptrdiff_t k = std::min<std::ptrdiff_t>(m, 2 * work.stages) - 1; k > 0; --k) {
    std::vector<int> ramp(rising.begin(), rising.begin() + k);
    ramp.insert(ramp.end(), falling.begin(), falling.end() - k);
    orders.push_back(std::move(ramp));
  }
  orders.push_back(rising);
  return orders;
}

bool all_equal(const ScheduleWork& work) {
  const auto same = [](const PassSeconds& a, const PassSeconds& b) {
    return a.forward == b.forward && a.backward_input == b.backward_input &&
           a.backward_weight == b.backward_weight;
  };
  for (int v = 0; v < work.virtual_stages(); ++v) {
    for (int j = 1; j < work.micro_batches; ++j) {
      if (!same(work.at(v, j), work.at(v, 0))) return false;
    }
  }
  return true;
}

}  // namespace

std::int64_t usual_search_steps(const ScheduleWork& work) {
  constexpr std::int64_t kLeast = 60'000;
  constexpr std::int64_t kSchedules = 64;
  const std::int64_t passes =
      2 * static_cast<std::int64_t>(work.virtual_stages()) * work.micro_batches;
  return std::max(kLeast, kSchedules * passes);
}

OrderedSchedule order_for_schedule(const ScheduleChoice& choice, const ScheduleWork& work,
                                   std::int64_t steps) {
  Search search(choice, work, steps > 0 ? steps : usual_search_steps(work));
  if (work.stages > 1 && work.micro_batches > 1 && !all_equal(work)) {
    constexpr std::size_t kUnderEveryRule = 3;
    const auto orders = usual_orders(work);
    for (std::size_t i = 0; i < orders.size() && !search.spent(); ++i) {
      search.keep_if_better(orders[i], i < kUnderEveryRule);
    }
    search.climb();
  }
  return search.finish();
}

double schedule_lower_bound(const ScheduleWork& work, bool split_backward) {
  const int m = work.micro_batches;
  if (m == 0) return 0;
  const auto back = [&](const PassSeconds& seconds) {
    return split_backward ? seconds.backward_input : seconds.backward();
  };
  const auto count = static_cast<std::size_t>(m);
  const double largest = *std::max_element(work.tokens.begin(), work.tokens.end());
  // Of each micro-batch: its way there over the virtual stages before, its way back over them, and
  // its way over those behind, there and back.
  std::vector<double> there(count, 0), return_way(count, 0), behind(count, 0);
  double bound = 0;
  std::vector<double> busy(static_cast<std::size_t>(work.stages), 0);
  std::vector<double> area(static_cast<std::size_t>(work.stages), 0);  // token-seconds
  for (int v = work.virtual_stages() - 1; v >= 0; --v) {
    const auto stage = static_cast<std::size_t>(v % work.stages);
    for (int j = 0; j < m; ++j) {
      const PassSeconds& seconds = work.at(v, j);
      const auto at = static_cast<std::size_t>(j);
      busy[stage] += seconds.forward + seconds.backward();
      behind[at] += seconds.forward + back(seconds);
      const double alive = behind[at] + (split_backward ? seconds.backward_weight : 0);
      area[stage] += alive * work.tokens[at] * work.share[static_cast<std::size_t>(v)];
      bound = std::max(bound, alive);
    }
  }
  for (int stage = 0; stage < work.stages; ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    const double head = *std::min_element(there.begin(), there.end());
    const double tail =
        split_backward ? 0 : *std::min_element(return_way.begin(), return_way.end());
    double inside = busy[s];
    if (!work.most_alive.empty()) {
      // A micro-batch larger than the limit may still be alive alone.
      const double most = std::max(work.most_alive[s], largest);
      if (most > 0) inside = std::max(inside, area[s] / most);
    }
    bound = std::max(bound, head + inside + tail);
    for (int j = 0; j < m; ++j) {
      there[static_cast<std::size_t>(j)] += work.at(stage, j).forward;
      return_way[static_cast<std::size_t>(j)] += back(work.at(stage, j));
    }
  }
  return bound;
}

bool splits_backward(Schedule schedule) {
  return schedule == Schedule::zero_bubble_h1 || schedule == Schedule::zero_bubble;
}

}  // namespace hydraulis
