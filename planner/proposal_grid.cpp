#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/proposal.h"

namespace hydraulis {
namespace {

/// A scheme on the grid, with the sums that make interval costs O(1).
struct GridScheme {
  int index = 0;               ///< in ProposalProblem::schemes
  int reach = 0;               ///< grid points it holds
  std::vector<double> prefix;  ///< Σ count·(a s² + b s + c) of the lengths up to each grid point
  std::vector<double> fill;    ///< (pp - 1)·t(longest), by bucket of the longest length
  std::vector<int> units;      ///< device steps that d replicas take
};

struct Grid {
  std::vector<std::int64_t> points;  ///< points[0] = 0
  std::vector<int> last_bucket;      ///< last bucket with sequences at or before a grid point
  std::vector<GridScheme> schemes;
  int units = 0;  ///< device steps available
};

std::vector<std::int64_t> grid_points(const ProposalProblem& problem) {
  std::vector<std::int64_t> points{0};
  while (points.back() < problem.context) {
    points.push_back(std::min(points.back() + problem.length_step, problem.context));
  }
  return points;
}

Grid make_grid(const ProposalProblem& problem, std::span<const int> schemes) {
  Grid grid;
  grid.points = grid_points(problem);
  grid.units = problem.devices / problem.device_step;
  const std::size_t size = grid.points.size();
  std::vector<double> count(size), tokens(size), squares(size), longest(size);
  for (const LengthCount& entry : problem.histogram) {
    if (entry.count == 0) continue;
    const auto bucket =
        static_cast<std::size_t>((entry.length + problem.length_step - 1) / problem.length_step);
    const auto length = static_cast<double>(entry.length);
    count[bucket] += entry.count;
    tokens[bucket] += entry.count * length;
    squares[bucket] += entry.count * length * length;
    longest[bucket] = std::max(longest[bucket], length);
  }
  grid.last_bucket.assign(size, 0);
  for (std::size_t i = 1; i < size; ++i) {
    grid.last_bucket[i] = longest[i] > 0 ? static_cast<int>(i) : grid.last_bucket[i - 1];
  }
  for (const int index : schemes) {
    const SchemeOption& option = problem.schemes[static_cast<std::size_t>(index)];
    GridScheme scheme;
    scheme.index = index;
    scheme.prefix.assign(size, 0);
    scheme.fill.assign(size, 0);
    for (std::size_t i = 1; i < size; ++i) {
      if (grid.points[i] <= option.max_tokens) scheme.reach = static_cast<int>(i);
      scheme.prefix[i] = scheme.prefix[i - 1] + option.cost.a * squares[i] +
                         option.cost.b * tokens[i] + option.cost.c * count[i];
      scheme.fill[i] =
          (option.scheme.pp - 1) * (option.cost.of_sequence(longest[i]) + option.cost.c);
    }
    const int devices = option.scheme.devices();
    for (int d = 0; d <= problem.devices / devices; ++d) {
      const int units = (d * devices + problem.device_step - 1) / problem.device_step;
      if (units > grid.units) break;
      scheme.units.push_back(units);
    }
    if (scheme.reach > 0 && scheme.units.size() > 1) grid.schemes.push_back(std::move(scheme));
  }
  return grid;
}

/// The fewest device steps that serve every length up to each grid point within a time.
class FewestDevices {
 public:
  explicit FewestDevices(const Grid& grid)
      : grid_(grid), units_(grid.points.size()), choices_(grid.points.size()) {}

  /// Computes grid points up to `last`; true when all fit in the available devices.
  bool within(double seconds, int last) {
    // The slack keeps a time that a solution just attains attainable in spite of rounding; it lies
    // far below the solver's tolerance.
    const double per_second = (1 - 1e-14) / seconds;
    units_[0] = 0;
    for (int s = 1; s <= last; ++s) {
      if (!extend(per_second, s)) return false;
    }
    return true;
  }

  std::vector<LengthInterval> trace(int s) const {
    std::vector<LengthInterval> intervals;
    while (s > 0) {
      const Choice& choice = choices_[static_cast<std::size_t>(s)];
      const auto& scheme = grid_.schemes[static_cast<std::size_t>(choice.scheme)];
      intervals.push_back({scheme.index, choice.replicas,
                           grid_.points[static_cast<std::size_t>(choice.from)],
                           grid_.points[static_cast<std::size_t>(s)],
                           cost(scheme, choice.from, s) / choice.replicas});
      s = choice.from;
    }
    return intervals;
  }

  /// Time of the slowest interval of the traced solution.
  double bottleneck(int s) const {
    double slowest = 0;
    while (s > 0) {
      const Choice& choice = choices_[static_cast<std::size_t>(s)];
      const auto& scheme = grid_.schemes[static_cast<std::size_t>(choice.scheme)];
      slowest = std::max(slowest, cost(scheme, choice.from, s) / choice.replicas);
      s = choice.from;
    }
    return slowest;
  }

  double cost(const GridScheme& scheme, int from, int s) const {
    const int longest = grid_.last_bucket[static_cast<std::size_t>(s)];
    if (longest <= from) return 0;
    return scheme.prefix[static_cast<std::size_t>(s)] -
           scheme.prefix[static_cast<std::size_t>(from)] +
           scheme.fill[static_cast<std::size_t>(longest)];
  }

 private:
  struct Choice {
    int scheme = 0;
    int replicas = 0;
    int from = 0;
  };

  /// D never falls with s (drop the longest bucket of a solution and it still serves the rest), and
  /// costs never fall as an interval grows downwards. So, from the short end of the interval's
  /// start: starts whose D alone is too many are skipped, and the walk ends where replicas alone
  /// are too many, or when D[s - 1], which nothing can beat, is reached.
  bool extend(double per_second, int s) {
    int best = grid_.units + 1;
    Choice choice;
    const int floor = units_[static_cast<std::size_t>(s - 1)];
    const int longest = grid_.last_bucket[static_cast<std::size_t>(s)];
    for (std::size_t k = 0; k < grid_.schemes.size() && best > floor; ++k) {
      const GridScheme& scheme = grid_.schemes[k];
      if (scheme.reach < s) continue;
      const int most = best - scheme.units[1];
      if (most <= 0) continue;
      // The largest start whose D leaves room for one replica under the best so far.
      int from = static_cast<int>(std::lower_bound(units_.begin(), units_.begin() + s, most) -
                                  units_.begin()) -
                 1;
      const double top = scheme.prefix[static_cast<std::size_t>(s)] +
                         scheme.fill[static_cast<std::size_t>(longest)];
      const auto replicas_end = static_cast<std::int64_t>(scheme.units.size());
      for (; from >= 0; --from) {
        std::int64_t replicas = 1;
        if (longest > from) {
          const double exact = (top - scheme.prefix[static_cast<std::size_t>(from)]) * per_second;
          if (!(exact < static_cast<double>(replicas_end))) break;
          replicas = static_cast<std::int64_t>(exact);
          replicas += static_cast<double>(replicas) < exact;
          replicas = std::max<std::int64_t>(replicas, 1);
          if (replicas >= replicas_end) break;
        }
        const int own = scheme.units[static_cast<std::size_t>(replicas)];
        if (own >= best) break;
        const int total = own + units_[static_cast<std::size_t>(from)];
        if (total < best) {
          best = total;
          choice = {static_cast<int>(k), static_cast<int>(replicas), from};
          if (best <= floor) break;
        }
      }
    }
    units_[static_cast<std::size_t>(s)] = best;
    choices_[static_cast<std::size_t>(s)] = choice;
    return best <= grid_.units;
  }

  const Grid& grid_;
  std::vector<int> units_;
  std::vector<Choice> choices_;
};

}  // namespace

std::vector<GridSolution> solve_grid(const ProposalProblem& problem, std::span<const int> schemes) {
  const Grid grid = make_grid(problem, schemes);
  const int last = static_cast<int>(grid.points.size()) - 1;
  FewestDevices fewest(grid);
  std::vector<GridSolution> solutions;
  constexpr double kTolerance = 1e-13;
  constexpr double kForever = std::numeric_limits<double>::max();
  double shorter = 0;  // T of the previous grid point: a lower bound
  for (int s = 1; s <= last; ++s) {
    GridSolution solution;
    solution.upto = grid.points[static_cast<std::size_t>(s)];
    const auto attain = [&](double seconds) {
      if (!fewest.within(seconds, s)) return false;
      solution.bottleneck_seconds = fewest.bottleneck(s);
      solution.intervals = fewest.trace(s);
      return true;
    };
    double low = shorter;
    if (!(shorter > 0 && attain(shorter))) {
      // Most grid points add little: look close to the lower bound first, then wider and wider.
      bool found = false;
      for (double growth = 1e-3; shorter > 0 && growth < 1e6 && !found; growth *= 8) {
        const double seconds = shorter * (1 + growth);
        found = attain(seconds);
        if (!found) low = seconds;
      }
      if (!found && !attain(kForever)) return solutions;
      while (solution.bottleneck_seconds - low > kTolerance * solution.bottleneck_seconds) {
        const double middle = low + (solution.bottleneck_seconds - low) / 2;
        if (middle <= low || middle >= solution.bottleneck_seconds) break;
        if (!attain(middle)) low = middle;
        // The objective takes few values: often nothing lies just below the one just found.
        else if (const double below = solution.bottleneck_seconds * (1 - kTolerance);
                 below > low && !attain(below)) {
          low = below;
        }
      }
    }
    shorter = std::max(shorter, solution.bottleneck_seconds);
    solutions.push_back(std::move(solution));
  }
  return solutions;
}

}  // namespace hydraulis
