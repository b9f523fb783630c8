#include "planner/proposal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "costmodel/build_cost_model.h"
#include "traces/synth.h"

namespace hydraulis {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Cost of the sequences in (from, to] on a scheme, summed directly as published.
double direct_cost(const ProposalProblem& problem, const SchemeOption& option, std::int64_t from,
                   std::int64_t to) {
  double cost = 0;
  std::int64_t longest = 0;
  for (const auto& [length, count] : problem.histogram) {
    if (length <= from || length > to || count == 0) continue;
    const auto s = static_cast<double>(length);
    cost += count * (option.cost.a * s * s + option.cost.b * s + option.cost.c);
    longest = std::max(longest, length);
  }
  if (longest == 0) return 0;
  const auto s = static_cast<double>(longest);
  return cost +
         (option.scheme.pp - 1) * (option.cost.a * s * s + option.cost.b * s + option.cost.c);
}

/// The published recurrence, table and inner loops as written: T[all devices][s] for every s.
std::vector<double> published(const ProposalProblem& problem) {
  std::vector<std::int64_t> grid{0};
  while (grid.back() < problem.context) {
    grid.push_back(std::min(grid.back() + problem.length_step, problem.context));
  }
  const int last = problem.devices / problem.device_step;
  std::vector<std::vector<double>> table(static_cast<std::size_t>(last) + 1,
                                         std::vector<double>(grid.size(), kNever));
  for (int unit = 0; unit <= last; ++unit) {
    auto& row = table[static_cast<std::size_t>(unit)];
    row[0] = 0;
    const int n = unit * problem.device_step;
    for (std::size_t s = 1; s < grid.size(); ++s) {
      if (unit > 0) row[s] = table[static_cast<std::size_t>(unit) - 1][s];
      for (const SchemeOption& option : problem.schemes) {
        if (option.max_tokens < grid[s]) continue;
        for (std::size_t from = 0; from < s; ++from) {
          const double cost = direct_cost(problem, option, grid[from], grid[s]);
          for (int d = 1; d * option.scheme.devices() <= n; ++d) {
            const int rest = (n - d * option.scheme.devices()) / problem.device_step;
            row[s] =
                std::min(row[s], std::max(table[static_cast<std::size_t>(rest)][from], cost / d));
          }
        }
      }
    }
  }
  return table.back();
}

ProposalProblem random_problem(Random& random) {
  ProposalProblem problem;
  problem.length_step = 1 + static_cast<std::int64_t>(random.below(4));
  problem.context = 1 + static_cast<std::int64_t>(random.below(9 * problem.length_step));
  problem.devices = 1 + static_cast<int>(random.below(20));
  problem.device_step = 1 + static_cast<int>(random.below(std::min(problem.devices, 4)));
  problem.optimizer = {problem.devices, 1, 1};
  const auto kinds = 1 + random.below(12);
  for (std::uint64_t i = 0; i < kinds; ++i) {
    problem.histogram.push_back({1 + static_cast<std::int64_t>(random.below(problem.context)),
                                 random.below(3) == 0 ? 0.0 : 20 * random.uniform()});
  }
  problem.histogram.push_back({1, 0.5});
  const auto schemes = 1 + random.below(6);
  for (std::uint64_t k = 0; k < schemes; ++k) {
    SchemeOption option;
    option.scheme.tp = 1 + static_cast<int>(random.below(4));
    option.scheme.pp = 1 + static_cast<int>(random.below(3));
    option.cost = {0.01 * random.uniform(), random.uniform(),
                   random.below(2) == 0 ? 0.0 : random.uniform()};
    // Often exact multiples of another scheme, so that ties and dominance occur.
    if (random.below(3) == 0) option.cost = {0.01, 0.5, 0.25};
    option.max_tokens = static_cast<std::int64_t>(random.below(problem.context + 3));
    problem.schemes.push_back(option);
  }
  return problem;
}

std::vector<int> all_schemes(const ProposalProblem& problem) {
  std::vector<int> all(problem.schemes.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(Proposal, ObjectiveEqualsThePublishedRecurrenceOnSmallGrids) {
  Random random(7);
  int feasible = 0;
  int dropped_some = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const ProposalProblem problem = random_problem(random);
    const auto expected = published(problem);
    std::vector<DroppedScheme> dropped;
    const auto useful = useful_schemes(problem, &dropped);
    dropped_some += !dropped.empty();
    for (const auto& schemes : {all_schemes(problem), useful}) {
      const auto solutions = solve_grid(problem, schemes);
      for (std::size_t s = 1; s < expected.size(); ++s) {
        if (expected[s] == kNever) {
          EXPECT_LT(solutions.size(), s) << "trial " << trial;
          continue;
        }
        ++feasible;
        ASSERT_GE(solutions.size(), s) << "trial " << trial;
        EXPECT_NEAR(solutions[s - 1].bottleneck_seconds, expected[s], 1e-12 * expected[s])
            << "trial " << trial << " grid point " << s;
      }
    }
  }
  EXPECT_GT(feasible, 1000);
  EXPECT_GT(dropped_some, 100);
}

TEST(Proposal, TracedSolutionsAttainTheObjectiveWithinTheDevices) {
  Random random(11);
  for (int trial = 0; trial < 200; ++trial) {
    const ProposalProblem problem = random_problem(random);
    for (const auto& solution : solve_grid(problem, all_schemes(problem))) {
      int used = 0;
      double slowest = 0;
      std::int64_t end = solution.upto;
      for (const LengthInterval& interval : solution.intervals) {
        const auto& option = problem.schemes[static_cast<std::size_t>(interval.scheme)];
        EXPECT_EQ(interval.to, end);
        EXPECT_LE(interval.to, option.max_tokens);
        EXPECT_LT(interval.from, interval.to);
        end = interval.from;
        used += interval.replicas * option.scheme.devices();
        slowest = std::max(
            slowest, direct_cost(problem, option, interval.from, interval.to) / interval.replicas);
      }
      EXPECT_EQ(end, 0);
      EXPECT_LE(used, problem.devices);
      EXPECT_NEAR(slowest, solution.bottleneck_seconds, 1e-12 * slowest);
    }
  }
}

TEST(Proposal, DropsASchemeThatMoreSmallerOnesReplace) {
  ProposalProblem problem;
  problem.context = 100;
  problem.devices = 8;
  problem.schemes = {{Scheme{1, 4, 1, Recompute::none, {}}, {0.01, 1, 1}, 200},
                     {Scheme{1, 1, 1, Recompute::none, {}}, {0.03, 3, 2}, 100},
                     {Scheme{1, 2, 1, Recompute::none, {}}, {0.01, 1, 1}, 100},
                     {Scheme{1, 1, 2, Recompute::none, {}}, {0.005, 1.6, 1}, 100},
                     {Scheme{1, 16, 1, Recompute::none, {}}, {0, 0, 0}, 100},
                     {Scheme{1, 1, 4, Recompute::none, {}}, {0, 0, 0}, 0}};
  std::vector<DroppedScheme> dropped;
  EXPECT_EQ(useful_schemes(problem, &dropped), (std::vector<int>{1, 2, 3}));
  ASSERT_EQ(dropped.size(), 3u);
  EXPECT_EQ(dropped[0].scheme.tp, 16);
  EXPECT_EQ(dropped[1].scheme.pp, 4);
  EXPECT_EQ(dropped[2].scheme.tp, 4);
  EXPECT_NE(dropped[2].reason.find("(1,1,1)"), std::string::npos);
}

ProposalProblem case_study(const std::string& preset) {
  ProposalProblem problem;
  problem.context = 32768;
  problem.devices = 64;
  problem.optimizer = {4, 16, 1};
  problem.schemes = scheme_options(make_cost_model(load_model("llama-32b"), load_cluster("a800-64"),
                                                   load_profile("a800-llama-32b"),
                                                   MemoryModel::published, problem.optimizer));
  problem.histogram =
      length_histogram(synthesize_preset(preset, 20000, 3), problem.context, 200000);
  return problem;
}

TEST(Proposal, CaseStudyHoldsOneLongPipelineAndManyShortOnes) {
  const ProposalProblem problem = case_study("commoncrawl");
  const Proposal proposal = propose_strategies(problem);
  ASSERT_GE(proposal.set.strategies.size(), 3u);
  ASSERT_EQ(proposal.upto.size(), proposal.set.strategies.size());
  EXPECT_EQ(to_string(proposal.set.strategies[0]), "4x(1,16,1)");
  EXPECT_EQ(proposal.upto[1], 32768);
  std::set<Strategy> distinct;
  bool found = false;
  for (const Strategy& strategy : proposal.set.strategies) {
    EXPECT_EQ(devices(strategy), 64) << to_string(strategy);
    EXPECT_TRUE(distinct.insert(strategy).second) << to_string(strategy);
    const auto long_ones =
        std::count_if(strategy.begin(), strategy.end(), [](const Scheme& s) { return s.tp == 16; });
    const auto short_ones =
        std::count_if(strategy.begin(), strategy.end(), [](const Scheme& s) { return s.tp <= 4; });
    found = found || (long_ones >= 1 && short_ones >= 4);
  }
  EXPECT_TRUE(found);
  // The mixed strategy must beat the fixed layout by the published order of magnitude.
  EXPECT_LT(proposal.bottleneck[1], 0.8 * proposal.bottleneck[0]);
  for (std::size_t i = 2; i < proposal.upto.size(); ++i) {
    EXPECT_LT(proposal.upto[i], proposal.upto[i - 1]);
    EXPECT_LT(proposal.bottleneck[i], proposal.bottleneck[i - 1]);
  }
}

TEST(Proposal, IsTheSameOnEveryRun) {
  const ProposalProblem problem = case_study("wikipedia");
  EXPECT_EQ(propose_strategies(problem).set.strategies, propose_strategies(problem).set.strategies);
}

TEST(Proposal, LimitsTheNumberOfStrategies) {
  ProposalProblem problem = case_study("wikipedia");
  const auto all = propose_strategies(problem);
  problem.max_strategies = 4;
  const auto few = propose_strategies(problem);
  ASSERT_GT(all.set.strategies.size(), 4u);
  ASSERT_EQ(few.set.strategies.size(), 4u);
  EXPECT_EQ(few.set.strategies[0], all.set.strategies[0]);
  EXPECT_EQ(few.set.strategies[1], all.set.strategies[1]);
  for (const auto& strategy : few.set.strategies) {
    EXPECT_NE(std::find(all.set.strategies.begin(), all.set.strategies.end(), strategy),
              all.set.strategies.end());
  }
}

TEST(Proposal, SpendsEveryDeviceItCan) {
  ProposalProblem problem;
  problem.context = 64;
  problem.length_step = 64;
  problem.devices = 7;
  problem.device_step = 4;
  problem.optimizer = {7, 1, 1};
  problem.histogram = {{64, 1}};
  problem.schemes = {{Scheme{1, 3, 1, Recompute::none, {}}, {0, 1, 0}, 64},
                     {Scheme{1, 2, 1, Recompute::none, {}}, {0, 2, 0}, 32}};
  const auto proposal = propose_strategies(problem);
  ASSERT_EQ(proposal.set.strategies.size(), 1u);
  EXPECT_EQ(to_string(proposal.set.strategies[0]), "(1,3,1)+2x(1,2,1)");
}

TEST(Proposal, SaysWhatContextWouldFit) {
  ProposalProblem problem = case_study("commoncrawl");
  problem.context = 65536;
  try {
    propose_strategies(problem);
    FAIL();
  } catch (const InfeasibleError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("43520 tokens ((1,16,1))"), std::string::npos) << message;
    EXPECT_NE(message.find("22016 too few"), std::string::npos) << message;
    EXPECT_NE(message.find("nearest context that fits is 43520"), std::string::npos) << message;
  }
  problem.context = 43520;
  EXPECT_NO_THROW(propose_strategies(problem));
  problem.devices = 8;
  problem.optimizer = {8, 1, 1};
  EXPECT_THROW(propose_strategies(problem), InfeasibleError);
  for (auto& option : problem.schemes) option.max_tokens = 0;
  EXPECT_THROW(propose_strategies(problem), InfeasibleError);
  problem.schemes.clear();
  EXPECT_THROW(propose_strategies(problem), InfeasibleError);
}

TEST(Proposal, RefusesHostileInput) {
  const ProposalProblem good = case_study("commoncrawl");
  const auto refused = [&](const auto& change) {
    ProposalProblem problem = good;
    change(problem);
    EXPECT_THROW(propose_strategies(problem), InputError);
  };
  refused([](auto& p) { p.histogram.clear(); });
  refused([](auto& p) { p.histogram = {{100, 0}}; });
  refused([](auto& p) { p.histogram[0].length = 0; });
  refused([](auto& p) { p.histogram[0].length = 32769; });
  refused([](auto& p) { p.histogram[0].count = -1; });
  refused([](auto& p) { p.histogram[0].count = std::numeric_limits<double>::quiet_NaN(); });
  refused([](auto& p) { p.histogram[0].count = kNever; });
  refused([](auto& p) { p.devices = 0; });
  refused([](auto& p) { p.devices = std::numeric_limits<int>::max(); });
  refused([](auto& p) { p.device_step = 0; });
  refused([](auto& p) { p.device_step = 65; });
  refused([](auto& p) { p.length_step = 0; });
  refused([](auto& p) { p.length_step = 1; });
  refused([](auto& p) { p.length_step = std::numeric_limits<std::int64_t>::max(); });
  refused([](auto& p) { p.context = 0; });
  refused([](auto& p) { p.context = std::numeric_limits<std::int64_t>::max(); });
  refused([](auto& p) { p.optimizer = {3, 16, 1}; });
  refused([](auto& p) { p.optimizer = {1 << 20, 1 << 20, 1 << 20}; });
  refused([](auto& p) { p.max_strategies = -1; });
  refused([](auto& p) { p.schemes[0].cost.a = -1; });
  refused([](auto& p) { p.schemes[0].cost.b = std::numeric_limits<double>::quiet_NaN(); });
  refused([](auto& p) { p.schemes[0].scheme.tp = 0; });
  refused([](auto& p) { p.schemes[0].scheme.pp = std::numeric_limits<int>::max(); });
}

TEST(LengthHistogram, ClipsToTheContextAndScalesToTheBatch) {
  LengthTrace trace;
  trace.lengths = {10, 50, 10, 400, 0};
  const auto whole = length_histogram(trace, 100);
  ASSERT_EQ(whole.size(), 3u);
  EXPECT_EQ(whole[0].length, 10);
  EXPECT_EQ(whole[0].count, 2);
  EXPECT_EQ(whole[2].length, 100);
  const auto scaled = length_histogram(trace, 100, 340);
  double tokens = 0;
  for (const auto& entry : scaled) tokens += entry.count * static_cast<double>(entry.length);
  EXPECT_NEAR(tokens, 340, 1e-9);
  EXPECT_THROW(length_histogram({}, 100), InputError);
  EXPECT_THROW(length_histogram(trace, 0), InputError);
  EXPECT_THROW(length_histogram(trace, 100, -1), InputError);
  trace.lengths = {0};
  EXPECT_THROW(length_histogram(trace, 100), InputError);
}

}  // namespace
}  // namespace hydraulis
