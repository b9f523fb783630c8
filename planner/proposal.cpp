#include "planner/proposal.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "base/error.h"
#include "planner/proposal_detail.h"

namespace hydraulis {
namespace {

constexpr int kMostDevices = 1 << 20;
constexpr std::int64_t kMostGridPoints = 2048;
constexpr std::int64_t kLongestContext = std::int64_t{1} << 40;
constexpr double kMostSequences = 1e15;

void require(bool good, const std::string& message) {
  if (!good) throw InputError(message);
}

void check(const ProposalProblem& problem) {
  require(problem.devices >= 1 && problem.devices <= kMostDevices,
          fmt::format("strategy proposal: {} devices, expected 1 to {}", problem.devices,
                      kMostDevices));
  require(problem.context >= 1 && problem.context <= kLongestContext,
          fmt::format("strategy proposal: context {} tokens, expected 1 to {}", problem.context,
                      kLongestContext));
  const std::int64_t least_step = (problem.context + kMostGridPoints - 1) / kMostGridPoints;
  require(problem.length_step >= least_step && problem.length_step <= kLongestContext,
          fmt::format("strategy proposal: length step {} tokens, expected {} to {} for context {}",
                      problem.length_step, least_step, kLongestContext, problem.context));
  require(problem.device_step >= 1 && problem.device_step <= problem.devices,
          fmt::format("strategy proposal: device step {}, expected 1 to the {} devices",
                      problem.device_step, problem.devices));
  require(problem.max_strategies >= 0 && problem.max_strategies != 1,
          fmt::format("strategy proposal: at most {} strategies asked for, expected 0 (no limit) "
                      "or at least 2",
                      problem.max_strategies));
  const OptimizerLayout& layout = problem.optimizer;
  require(layout.dp >= 1 && layout.tp >= 1 && layout.pp >= 1 && layout.dp <= kMostDevices &&
              layout.tp <= kMostDevices && layout.pp <= kMostDevices &&
              std::int64_t{layout.dp} * layout.tp <= kMostDevices &&
              std::int64_t{layout.dp} * layout.tp * layout.pp == problem.devices,
          fmt::format("optimizer layout dp{}·tp{}·pp{}: its product is not the {} devices",
                      layout.dp, layout.tp, layout.pp, problem.devices));
  require(!problem.histogram.empty(),
          "strategy proposal: the length histogram is empty, expected at least one length");
  double sequences = 0;
  for (const LengthCount& entry : problem.histogram) {
    require(entry.length >= 1 && entry.length <= problem.context,
            fmt::format("strategy proposal: length {} in the histogram, expected 1 to the context "
                        "{}",
                        entry.length, problem.context));
    require(entry.count >= 0 && entry.count <= kMostSequences,
            fmt::format("strategy proposal: count {} of length {}, expected 0 to {}", entry.count,
                        entry.length, kMostSequences));
    sequences += entry.count;
  }
  require(sequences > 0, "strategy proposal: every count of the length histogram is 0");
  for (const SchemeOption& option : problem.schemes) {
    const auto fine = [](double x) { return x >= 0 && x <= 1e9; };
    require(fine(option.cost.a) && fine(option.cost.b) && fine(option.cost.c),
            fmt::format("scheme {}: time coefficients {}, {}, {}, expected 0 to 1e9",
                        to_string(option.scheme), option.cost.a, option.cost.b, option.cost.c));
    require(
        option.scheme.cp >= 1 && option.scheme.tp >= 1 && option.scheme.pp >= 1 &&
            option.scheme.cp <= kMostDevices && option.scheme.tp <= kMostDevices &&
            std::int64_t{option.scheme.cp} * option.scheme.tp <= kMostDevices &&
            std::int64_t{option.scheme.cp} * option.scheme.tp * option.scheme.pp <= kMostDevices,
        fmt::format("scheme {}: expected 1 to {} devices", to_string(option.scheme), kMostDevices));
  }
}

int steps_needed(const ProposalProblem& problem, const Scheme& scheme) {
  return (scheme.devices() + problem.device_step - 1) / problem.device_step;
}

bool fits_cluster(const ProposalProblem& problem, const Scheme& scheme) {
  return steps_needed(problem, scheme) <= problem.devices / problem.device_step;
}

/// Whether every use of `worse` can be replaced by `better` without loss of the objective:
/// m = ⌊g_worse / g_better⌋ ≥ 1 replicas of `better` take the place of one of `worse`.
///
/// Proof. Let each of the d replicas on an interval I be replaced by m. Devices: m·d·g_better ≤
/// d·g_worse, also after rounding up to device steps. Memory: `better` holds at least as long a
/// micro-batch, or the whole context. Time: cost_better(I) / (m·d) ≤ cost_worse(I) / d, since cost
/// is a sum of a, b and c with non-negative weights (Σs², Σs, Σ1) and of (pp-1)·a, (pp-1)·b and
/// (pp-1)·c with non-negative weights (L², L, 1), and each of these six, divided by m, is no
/// larger. The relation is transitive, and of two equal schemes only the later one goes, so a
/// scheme that stays always stands for one that went.
bool replaces(const SchemeOption& better, const SchemeOption& worse, std::int64_t context) {
  const double m = worse.scheme.devices() / better.scheme.devices();
  if (m < 1) return false;
  if (better.max_tokens < std::min(worse.max_tokens, context)) return false;
  const double fill = (better.scheme.pp - 1) / m;
  const double worse_fill = worse.scheme.pp - 1;
  const auto no_larger = [&](double x, double y) {
    return x <= m * y && fill * x <= worse_fill * y;
  };
  return no_larger(better.cost.a, worse.cost.a) && no_larger(better.cost.b, worse.cost.b) &&
         no_larger(better.cost.c, worse.cost.c);
}

[[noreturn]] void refuse_context(const ProposalProblem& problem) {
  const SchemeOption* longest = nullptr;
  const SchemeOption* too_wide = nullptr;
  for (const SchemeOption& option : problem.schemes) {
    const bool fits = fits_cluster(problem, option.scheme);
    const SchemeOption*& best = fits ? longest : too_wide;
    if (best == nullptr || option.max_tokens > best->max_tokens) best = &option;
  }
  if (longest == nullptr && too_wide != nullptr) {
    throw InfeasibleError("no scheme fits on {} devices: {} needs {}, {} too many", problem.devices,
                          to_string(too_wide->scheme), too_wide->scheme.devices(),
                          too_wide->scheme.devices() - problem.devices);
  }
  if (longest == nullptr) {
    throw InfeasibleError("no parallel scheme is known for this model on {} devices",
                          problem.devices);
  }
  if (longest->max_tokens < 1) {
    throw InfeasibleError(
        "context {} tokens: no scheme on {} devices has memory left for a single token; use more "
        "devices, or a memory model, cap or optimizer layout that leaves room",
        problem.context, problem.devices);
  }
  throw InfeasibleError(
      "context {} tokens: the longest micro-batch that any scheme holds on {} devices is {} tokens "
      "({}), {} too few; the nearest context that fits is {}",
      problem.context, problem.devices, longest->max_tokens, to_string(longest->scheme),
      problem.context - longest->max_tokens, longest->max_tokens);
}

/// The strategy of the optimizer layout and what it attains; nothing if its scheme is no option.
std::vector<detail::Candidate> homogeneous(const ProposalProblem& problem) {
  const OptimizerLayout& layout = problem.optimizer;
  const Scheme scheme{1, layout.tp, layout.pp, Recompute::none, {}};
  for (std::size_t k = 0; k < problem.schemes.size(); ++k) {
    if (problem.schemes[k].scheme != scheme || problem.schemes[k].max_tokens < 1) continue;
    detail::Candidate candidate;
    candidate.strategy.assign(static_cast<std::size_t>(layout.dp), scheme);
    const int index = static_cast<int>(k);
    const auto solutions = solve_grid(problem, {&index, 1});
    if (!solutions.empty()) {
      candidate.upto = solutions.back().upto;
      candidate.bottleneck = solutions.back().bottleneck_seconds;
    }
    return {candidate};
  }
  return {};
}

}  // namespace

std::vector<int> useful_schemes(const ProposalProblem& problem,
                                std::vector<DroppedScheme>* dropped) {
  std::vector<int> fitting;
  std::vector<int> useful;
  const auto drop = [&](const Scheme& scheme, std::string reason) {
    if (dropped != nullptr) dropped->push_back({scheme, std::move(reason)});
  };
  for (std::size_t k = 0; k < problem.schemes.size(); ++k) {
    const SchemeOption& option = problem.schemes[k];
    if (option.max_tokens < 1) {
      drop(option.scheme, "its memory holds no token");
    } else if (!fits_cluster(problem, option.scheme)) {
      drop(option.scheme,
           fmt::format("it needs {} devices of {}", option.scheme.devices(), problem.devices));
    } else {
      fitting.push_back(static_cast<int>(k));
    }
  }
  for (const int k : fitting) {
    const SchemeOption& option = problem.schemes[static_cast<std::size_t>(k)];
    const auto better = std::find_if(fitting.begin(), fitting.end(), [&](int other) {
      const SchemeOption& rival = problem.schemes[static_cast<std::size_t>(other)];
      return other != k && replaces(rival, option, problem.context) &&
             (other < k || !replaces(option, rival, problem.context));
    });
    if (better == fitting.end()) {
      useful.push_back(k);
    } else {
      const Scheme& rival = problem.schemes[static_cast<std::size_t>(*better)].scheme;
      drop(option.scheme,
           fmt::format("{} is no slower on as many devices and holds sequences as long",
                       to_string(rival)));
    }
  }
  return useful;
}

Proposal propose_strategies(const ProposalProblem& problem) {
  const auto start = std::chrono::steady_clock::now();
  check(problem);
  Proposal proposal;
  proposal.set.optimizer = problem.optimizer;
  const auto schemes = useful_schemes(problem, &proposal.dropped);
  const auto solutions = solve_grid(problem, schemes);
  if (solutions.empty() || solutions.back().upto < problem.context) refuse_context(problem);

  auto candidates = homogeneous(problem);
  const std::size_t first = candidates.size();
  std::set<Strategy> known;
  for (const auto& candidate : candidates) known.insert(candidate.strategy);
  double longer = 0;  // objective of the last solution met, which serves longer sequences
  for (auto solution = solutions.rbegin(); solution != solutions.rend(); ++solution) {
    const bool dominated =
        solution != solutions.rbegin() && solution->bottleneck_seconds >= longer * (1 - 1e-12);
    if (dominated) continue;
    longer = solution->bottleneck_seconds;
    auto strategy = detail::use_all_devices(problem, schemes, *solution);
    if (!known.insert(strategy).second) continue;
    candidates.push_back({std::move(strategy), solution->upto, solution->bottleneck_seconds});
  }
  if (problem.max_strategies > 0) {
    candidates = detail::thin_out(problem, std::move(candidates), first,
                                  static_cast<std::size_t>(problem.max_strategies));
  }
  for (auto& candidate : candidates) {
    proposal.set.strategies.push_back(std::move(candidate.strategy));
    proposal.upto.push_back(candidate.upto);
    proposal.bottleneck.push_back(candidate.bottleneck);
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  proposal.seconds = elapsed.count();
  return proposal;
}

}  // namespace hydraulis
