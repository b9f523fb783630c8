#include "planner/proposal_groups.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "planner/mixtures.h"
#include "planner/proposal_detail.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kLeastStep = 128;  ///< tokens; the grain of max_tokens()
constexpr double kGrowth = 1.15;          ///< of the grid's points
constexpr int kMostSteps = 64;            ///< of devices, by group
constexpr std::size_t kMostStates = 1 << 14;
/// Strategies tried for each other group beside two schemes on one.
constexpr std::size_t kMostBesideMixture = 1;

std::vector<std::int64_t> growing_grid(std::int64_t context) {
  std::vector<std::int64_t> points{0};
  while (points.back() < context) {
    const auto grown = static_cast<std::int64_t>(kGrowth * static_cast<double>(points.back()));
    const std::int64_t next = std::max(points.back() + kLeastStep, grown / kLeastStep * kLeastStep);
    points.push_back(std::min(next, context));
  }
  return points;
}

/// A scheme on the grid.
struct Column {
  int scheme = 0;  ///< in ProposalProblem::schemes
  int group = 0;
  int step = 0;                   ///< device steps of a pipeline
  std::vector<double> prefix;     ///< seconds of all sequences up to a grid point
  std::vector<double> fill;       ///< bubble of the longest sequence up to a grid point
  std::vector<std::int64_t> own;  ///< grid points it holds: own[s] > 0
};

class GroupSolver {
 public:
  explicit GroupSolver(const GroupProblem& given)
      : given_(given), points_(growing_grid(given.problem.context)) {
    const auto groups = given.group_devices.size();
    for (std::size_t g = 0; g < groups; ++g) {
      const int devices = given.group_devices[g];
      grain_.push_back((devices + kMostSteps - 1) / kMostSteps);
      steps_.push_back(devices / grain_.back());
    }
    stride_.assign(groups, 0);
    std::size_t states = 1;
    for (std::size_t g = 0; g + 1 < groups; ++g) {
      stride_[g] = states;
      states *= static_cast<std::size_t>(steps_[g]) + 1;
      if (states > kMostStates) {
        throw InputError(
            "strategy proposal: {} node groups are too many; expected fewer, which each run of "
            "alike nodes makes one of (of slow ones too where they are known)",
            groups);
      }
    }
    states_ = states;
    for (int g = 0; g < static_cast<int>(groups); ++g) add_columns(g);
    fewest_.assign(points_.size(), std::vector<int>(states_));
    choices_.assign(points_.size(), std::vector<Choice>(states_));
  }

  std::vector<GridSolution> solve() {
    std::vector<GridSolution> solutions;
    double shorter = 0;  // time of the grid point before: a lower bound
    for (std::size_t s = 1; s < points_.size(); ++s) {
      GridSolution solution;
      solution.upto = points_[s];
      const auto attain = [&](double seconds) {
        if (!within(seconds, s)) return false;
        trace(s, solution);
        return true;
      };
      if (!(shorter > 0 && attain(shorter))) {
        if (!attain(std::numeric_limits<double>::max())) break;
        double low = shorter;
        while (solution.bottleneck_seconds - low > given_.tolerance * solution.bottleneck_seconds) {
          const double middle = low + (solution.bottleneck_seconds - low) / 2;
          if (!attain(middle)) low = middle;
        }
      }
      shorter = std::max(shorter, solution.bottleneck_seconds);
      solutions.push_back(std::move(solution));
    }
    return solutions;
  }

 private:
  struct Choice {
    int column = 0;
    int replicas = 0;
    std::size_t from = 0;
  };

  void add_columns(int group) {
    const ProposalProblem& problem = given_.problem;
    ProposalProblem own = problem;
    own.devices = given_.group_devices[static_cast<std::size_t>(group)];
    own.device_step = 1;
    std::vector<int> index;
    own.schemes.clear();
    for (std::size_t k = 0; k < problem.schemes.size(); ++k) {
      if (problem.schemes[k].scheme.group != group) continue;
      own.schemes.push_back(problem.schemes[k]);
      index.push_back(static_cast<int>(k));
    }
    for (const int k : useful_schemes(own)) {
      columns_.push_back(
          column(own.schemes[static_cast<std::size_t>(k)], index[static_cast<std::size_t>(k)]));
    }
  }

  Column column(const SchemeOption& option, int scheme) const {
    Column result;
    result.scheme = scheme;
    result.group = option.scheme.group;
    const int grain = grain_[static_cast<std::size_t>(result.group)];
    result.step = (option.scheme.devices() + grain - 1) / grain;
    result.prefix.assign(points_.size(), 0);
    result.fill.assign(points_.size(), 0);
    result.own.assign(points_.size(), 0);
    std::vector<double> longest(points_.size(), 0);
    for (const LengthCount& entry : given_.problem.histogram) {
      if (entry.count == 0) continue;
      const auto at = static_cast<std::size_t>(std::ranges::lower_bound(points_, entry.length) -
                                               points_.begin());
      const auto length = static_cast<double>(entry.length);
      result.prefix[at] += entry.count * (option.cost.of_sequence(length) + option.cost.c);
      longest[at] = std::max(longest[at], length);
    }
    for (std::size_t s = 1; s < points_.size(); ++s) {
      result.prefix[s] += result.prefix[s - 1];
      longest[s] = std::max(longest[s], longest[s - 1]);
      if (longest[s] > 0) {
        result.fill[s] =
            (option.scheme.pp - 1) * (option.cost.of_sequence(longest[s]) + option.cost.c);
      }
      result.own[s] = points_[s] <= option.max_tokens ? 1 : 0;
    }
    return result;
  }

  /// Seconds of one pipeline that trains the lengths in (points[from], points[s]].
  static double cost(const Column& column, std::size_t from, std::size_t s) {
    const double work = column.prefix[s] - column.prefix[from];
    return work > 0 ? work + column.fill[s] : 0;
  }

  bool within(double seconds, std::size_t last) {
    const int never = steps_.back() + 1;
    std::ranges::fill(fewest_[0], 0);
    for (std::size_t s = 1; s <= last; ++s) {
      std::ranges::fill(fewest_[s], never);
      for (int c = 0; c < static_cast<int>(columns_.size()); ++c) {
        const Column& column = columns_[static_cast<std::size_t>(c)];
        if (column.own[s] == 0) continue;
        for (std::size_t from = s; from-- > 0;) {
          const double exact = cost(column, from, s) / seconds * (1 - 1e-14);
          const int most = steps_[static_cast<std::size_t>(column.group)] / column.step;
          if (!(exact <= most)) break;  // longer intervals cost more
          auto replicas = std::max(1, static_cast<int>(exact));
          replicas += static_cast<double>(replicas) < exact ? 1 : 0;
          if (replicas > most) break;
          extend(s, from, c, replicas);
        }
      }
    }
    return fewest_[last][states_ - 1] <= steps_.back();
  }

  void extend(std::size_t s, std::size_t from, int c, int replicas) {
    const Column& column = columns_[static_cast<std::size_t>(c)];
    const auto group = static_cast<std::size_t>(column.group);
    const int steps = replicas * column.step;
    const bool last = group + 1 == steps_.size();
    const std::size_t stride = stride_[group];
    for (std::size_t state = 0; state < states_; ++state) {
      int total = 0;
      if (last) {
        total = fewest_[from][state] + steps;
      } else {
        const auto available =
            static_cast<int>(state / stride % (static_cast<std::size_t>(steps_[group]) + 1));
        if (available < steps) continue;
        total = fewest_[from][state - stride * static_cast<std::size_t>(steps)];
      }
      if (total < fewest_[s][state]) {
        fewest_[s][state] = total;
        choices_[s][state] = {c, replicas, from};
      }
    }
  }

  void trace(std::size_t s, GridSolution& solution) const {
    solution.intervals.clear();
    solution.bottleneck_seconds = 0;
    std::size_t state = states_ - 1;
    while (s > 0) {
      const Choice& choice = choices_[s][state];
      const Column& column = columns_[static_cast<std::size_t>(choice.column)];
      const double seconds = cost(column, choice.from, s) / choice.replicas;
      solution.intervals.push_back(
          {column.scheme, choice.replicas, points_[choice.from], points_[s], seconds});
      solution.bottleneck_seconds = std::max(solution.bottleneck_seconds, seconds);
      if (static_cast<std::size_t>(column.group) + 1 < steps_.size()) {
        state -= stride_[static_cast<std::size_t>(column.group)] *
                 static_cast<std::size_t>(choice.replicas * column.step);
      }
      s = choice.from;
    }
  }

  const GroupProblem& given_;
  std::vector<std::int64_t> points_;
  std::vector<int> grain_;           ///< devices of a step, by group
  std::vector<int> steps_;           ///< by group
  std::vector<std::size_t> stride_;  ///< of a step in a state, by group but the last
  std::size_t states_ = 1;
  std::vector<Column> columns_;
  std::vector<std::vector<int>> fewest_;
  std::vector<std::vector<Choice>> choices_;
};

/// A group's part of a problem, and which of all schemes its own are.
struct Part {
  ProposalProblem problem;
  std::vector<int> schemes;
};

Part part_of(const GroupProblem& given, int group) {
  Part part;
  part.problem = given.problem;
  part.problem.devices = given.group_devices[static_cast<std::size_t>(group)];
  for (std::size_t k = 0; k < given.problem.schemes.size(); ++k) {
    const SchemeOption& option = given.problem.schemes[k];
    if (option.scheme.group != group || option.max_tokens < 1) continue;
    if (option.scheme.devices() > part.problem.devices) continue;
    part.schemes.push_back(static_cast<int>(k));
  }
  return part;
}

/// One scheme on all devices of a group, for each that uses them all; cheapest tokens first.
std::vector<Strategy> alike(const Part& part) {
  std::vector<Strategy> result;
  ProposalProblem own = part.problem;
  own.schemes.clear();
  for (const int k : part.schemes) {
    own.schemes.push_back(part.problem.schemes[static_cast<std::size_t>(k)]);
  }
  std::vector<int> useful = useful_schemes(own);
  std::ranges::stable_sort(useful, {}, [&](int k) {
    const SchemeOption& option = own.schemes[static_cast<std::size_t>(k)];
    return option.cost.b * option.scheme.devices();
  });
  for (const int k : useful) {
    const Scheme& scheme = own.schemes[static_cast<std::size_t>(k)].scheme;
    if (own.devices % scheme.devices() != 0) continue;
    result.emplace_back(static_cast<std::size_t>(own.devices / scheme.devices()), scheme);
  }
  return result;
}

/// Two schemes on a group, one of them for long sequences.
std::vector<Strategy> mixed_strategies(const Part& part) {
  std::vector<SchemeOption> own;
  for (const int k : part.schemes) {
    own.push_back(part.problem.schemes[static_cast<std::size_t>(k)]);
  }
  return mixtures(own, part.problem.devices, part.problem.context / 2);
}

/// Every combination of one strategy for each group.
std::vector<Strategy> combined(const std::vector<std::vector<Strategy>>& choices) {
  std::vector<Strategy> result = {{}};
  for (const std::vector<Strategy>& choice : choices) {
    std::vector<Strategy> longer;
    for (const Strategy& before : result) {
      for (const Strategy& own : choice) {
        longer.push_back(before);
        longer.back().insert(longer.back().end(), own.begin(), own.end());
      }
    }
    result = std::move(longer);
  }
  return result;
}

}  // namespace

std::vector<GridSolution> solve_groups_grid(const GroupProblem& problem) {
  return GroupSolver(problem).solve();
}

std::vector<Strategy> propose_over_groups(const GroupProblem& problem) {
  std::vector<GridSolution> solutions = solve_groups_grid(problem);
  if (solutions.empty() || solutions.back().upto < problem.problem.context) {
    const auto longest =
        std::ranges::max_element(problem.problem.schemes, {}, &SchemeOption::max_tokens);
    const std::int64_t tokens = longest == problem.problem.schemes.end() ? 0 : longest->max_tokens;
    throw InfeasibleError(
        "context {} tokens: the longest micro-batch that any scheme holds on any group of nodes is "
        "{} tokens, {} too few; the nearest context that fits is {}",
        problem.problem.context, tokens, problem.problem.context - tokens, tokens);
  }
  std::vector<Part> parts;
  for (int g = 0; g < static_cast<int>(problem.group_devices.size()); ++g) {
    parts.push_back(part_of(problem, g));
  }
  std::vector<Strategy> strategies;
  for (auto solution = solutions.rbegin(); solution != solutions.rend(); ++solution) {
    Strategy strategy;
    for (std::size_t g = 0; g < parts.size(); ++g) {
      if (parts[g].schemes.empty()) continue;
      GridSolution own = *solution;
      std::erase_if(own.intervals, [&](const LengthInterval& interval) {
        const Scheme& scheme =
            problem.problem.schemes[static_cast<std::size_t>(interval.scheme)].scheme;
        return static_cast<std::size_t>(scheme.group) != g;
      });
      const Strategy pipelines = detail::use_all_devices(parts[g].problem, parts[g].schemes, own);
      strategy.insert(strategy.end(), pipelines.begin(), pipelines.end());
    }
    add_new(strategies, std::move(strategy));
  }
  std::vector<std::vector<Strategy>> one_scheme;
  for (const Part& part : parts) one_scheme.push_back(alike(part));
  for (Strategy& strategy : combined(one_scheme)) add_new(strategies, std::move(strategy));
  // Two schemes on one group, one of the cheapest on each other.
  for (std::size_t mixed = 0; mixed < parts.size(); ++mixed) {
    std::vector<std::vector<Strategy>> choices = one_scheme;
    for (auto& choice : choices) choice.resize(std::min(choice.size(), kMostBesideMixture));
    choices[mixed] = mixed_strategies(parts[mixed]);
    for (Strategy& strategy : combined(choices)) add_new(strategies, std::move(strategy));
  }
  return strategies;
}

}  // namespace hydraulis
