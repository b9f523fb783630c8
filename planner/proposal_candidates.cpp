#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "planner/proposal_detail.h"

namespace hydraulis::detail {
namespace {

const SchemeOption& option_of(const ProposalProblem& problem, int scheme) {
  return problem.schemes[static_cast<std::size_t>(scheme)];
}

int devices_of(const ProposalProblem& problem, int scheme) {
  return option_of(problem, scheme).scheme.devices();
}

/// The option that spends the least device time on a token of a short sequence.
int cheapest(const ProposalProblem& problem, std::span<const int> schemes) {
  return *std::min_element(schemes.begin(), schemes.end(), [&](int x, int y) {
    return option_of(problem, x).cost.b * devices_of(problem, x) <
           option_of(problem, y).cost.b * devices_of(problem, y);
  });
}

/// Whether 0 … `left` devices can be spent on whole pipelines exactly.
std::vector<bool> spendable(const ProposalProblem& problem, std::span<const int> schemes,
                            int left) {
  std::vector<bool> exact(static_cast<std::size_t>(left) + 1);
  exact[0] = true;
  for (int n = 1; n <= left; ++n) {
    exact[static_cast<std::size_t>(n)] = std::any_of(schemes.begin(), schemes.end(), [&](int k) {
      const int devices = devices_of(problem, k);
      return devices <= n && exact[static_cast<std::size_t>(n - devices)];
    });
  }
  return exact;
}

}  // namespace

Strategy use_all_devices(const ProposalProblem& problem, std::span<const int> schemes,
                         const GridSolution& solution) {
  struct Group {
    int scheme;
    double cost;  // seconds of one pipeline that trains the whole interval
    int replicas;
  };
  std::vector<Group> groups;
  int left = problem.devices;
  for (const LengthInterval& interval : solution.intervals) {
    groups.push_back({interval.scheme, interval.seconds * interval.replicas, interval.replicas});
    left -= interval.replicas * devices_of(problem, interval.scheme);
  }
  const auto exact = spendable(problem, schemes, left);
  while (!exact[static_cast<std::size_t>(left)]) --left;
  while (left > 0) {
    const auto spends = [&](int scheme) {
      const int devices = devices_of(problem, scheme);
      return devices <= left && exact[static_cast<std::size_t>(left - devices)];
    };
    Group* slowest = nullptr;
    for (Group& group : groups) {
      if (spends(group.scheme) &&
          (slowest == nullptr || group.cost / group.replicas > slowest->cost / slowest->replicas)) {
        slowest = &group;
      }
    }
    if (slowest == nullptr) {
      std::vector<int> fitting;
      std::copy_if(schemes.begin(), schemes.end(), std::back_inserter(fitting), spends);
      slowest = &groups.emplace_back(Group{cheapest(problem, fitting), 0.0, 0});
    }
    ++slowest->replicas;
    left -= devices_of(problem, slowest->scheme);
  }
  std::vector<int> pipelines;
  for (const Group& group : groups) {
    pipelines.insert(pipelines.end(), static_cast<std::size_t>(group.replicas), group.scheme);
  }
  std::stable_sort(pipelines.begin(), pipelines.end(), [&](int x, int y) {
    const auto order = [&](int k) {
      return std::make_tuple(-option_of(problem, k).max_tokens, -devices_of(problem, k), k);
    };
    return order(x) < order(y);
  });
  Strategy strategy;
  for (const int k : pipelines) strategy.push_back(option_of(problem, k).scheme);
  return strategy;
}

std::vector<Candidate> thin_out(const ProposalProblem& problem, std::vector<Candidate> candidates,
                                std::size_t keep, std::size_t most) {
  if (candidates.size() <= most) return candidates;
  // From here on the candidates to choose from, longest first; the first of them always stays.
  const std::size_t n = candidates.size() - keep;
  const std::size_t chosen = std::max<std::size_t>(most - std::min(most, keep), 1);
  double sequences = 0;
  for (const LengthCount& entry : problem.histogram) sequences += entry.count;
  // Chance that a batch's longest sequence is no longer than the candidate's lengths.
  std::vector<double> reached(n + 1, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    double longer = 0;
    for (const LengthCount& entry : problem.histogram) {
      if (entry.length > candidates[keep + i].upto) longer += entry.count;
    }
    reached[i] = longer >= sequences
                     ? 0.0
                     : std::exp(std::max(sequences, 1.0) * std::log1p(-longer / sequences));
  }
  // best[c][i]: least expected time of the batches that candidate i reaches when it and c - 1 of
  // the shorter candidates are kept.
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(chosen + 1, std::vector<double>(n + 1, kNever));
  std::vector<std::vector<std::size_t>> next(chosen + 1, std::vector<std::size_t>(n + 1, n));
  for (std::size_t c = 1; c <= chosen; ++c) {
    for (std::size_t i = n; i-- > 0;) {
      const double own = candidates[keep + i].bottleneck;
      best[c][i] = own * reached[i];
      if (c == 1) continue;
      for (std::size_t j = i + 1; j < n; ++j) {
        const double cost = own * (reached[i] - reached[j]) + best[c - 1][j];
        if (cost < best[c][i]) {
          best[c][i] = cost;
          next[c][i] = j;
        }
      }
    }
  }
  std::vector<Candidate> result(candidates.begin(),
                                candidates.begin() + static_cast<std::ptrdiff_t>(keep));
  std::size_t c = chosen;
  for (std::size_t i = 0; i < n; i = next[c--][i]) result.push_back(candidates[keep + i]);
  return result;
}

}  // namespace hydraulis::detail
