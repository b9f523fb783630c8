#include "sim/tune.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "base/error.h"
#include "costmodel/build_cost_model.h"
#include "sim/run_policy.h"
#include "sim/tune_select.h"
#include "tests/sim/small_model.h"

namespace hydraulis {
namespace {

LengthTrace skewed_trace(std::uint32_t most) {
  LengthTrace trace;
  trace.source = "skewed";
  for (std::uint32_t i = 0; i < 900; ++i) trace.lengths.push_back(16 + (i * 7919) % (most / 10));
  for (std::uint32_t i = 0; i < 60; ++i)
    trace.lengths.push_back(most / 3 + (i * 1543) % (most / 2));
  return trace;
}

/// Eight devices and three schemes of 2, 2 and 4 of them: nine strategies in all.
TuneProblem small_problem(const LengthTrace& trace) {
  TuneProblem problem;
  problem.model = testing::small_model();
  problem.model.memory = MemoryModel::composed;
  problem.start = {"start", {parse_strategies("4x(1,2,1)", "test"), {2, 2, 2}}, 0};
  problem.trace = &trace;
  problem.sampling.context = 4000;
  problem.sampling.over_context = OverContext::truncate;
  problem.tokens_per_batch = {9000};
  return problem;
}

TuneOptions small_options() {
  TuneOptions options;
  options.search_iterations = 10;
  options.held_out_iterations = 6;
  options.most_strategies = 3;
  options.keep_layout = true;
  options.max_tokens = {0};
  return options;
}

std::vector<Batch> drawn(const TuneProblem& problem, std::uint64_t seed, std::uint64_t count) {
  SamplerOptions sampling = problem.sampling;
  sampling.tokens_per_batch = problem.tokens_per_batch.front();
  sampling.seed = seed;
  Sampler sampler(*problem.trace, sampling);
  std::vector<Batch> batches;
  for (std::uint64_t i = 0; i < count; ++i) batches.push_back(sampler.next());
  return batches;
}

std::vector<Strategy> every_strategy() {
  std::vector<Strategy> all;
  for (int four = 0; four <= 2; ++four) {
    for (int two = 0; two <= 4 - 2 * four; ++two) {
      Strategy strategy(static_cast<std::size_t>(four), Scheme{1, 1, 4, Recompute::none, {}});
      strategy.insert(strategy.end(), static_cast<std::size_t>(two),
                      Scheme{1, 2, 1, Recompute::none, {}});
      strategy.insert(strategy.end(), static_cast<std::size_t>(4 - 2 * four - two),
                      Scheme{1, 1, 2, Recompute::none, {}});
      all.push_back(strategy);
    }
  }
  return all;
}

// All sets of up to three of the nine strategies, each planned and simulated in full without any of
// the tuner's tables.
TEST(Tune, FindsTheBestSetOfAllThereAre) {
  const LengthTrace trace = skewed_trace(4000);
  for (const bool no_communication : {false, true}) {
    TuneProblem problem = small_problem(trace);
    problem.no_communication = no_communication;
    const TuneOptions options = small_options();
    const std::vector<Batch> batches = drawn(problem, problem.sampling.seed, 10);
    const std::vector<Strategy> all = every_strategy();
    ASSERT_EQ(all.size(), 9u);
    double best = 0;
    for (std::size_t mask = 1; mask < 512; ++mask) {
      if (std::popcount(mask) > 3) continue;
      TunePlan plan{"set", {{}, problem.start.set.optimizer}, 0};
      for (std::size_t s = 0; s < all.size(); ++s) {
        if ((mask >> s & 1) != 0) plan.set.strategies.push_back(all[s]);
      }
      best = std::max(best, run_plan(plan, problem, batches, 2).summary.tokens_per_second);
    }
    const TuneResult result = tune(problem, options);
    double found = 0;
    for (const TunePoint& point : result.budgets.front().frontier) {
      found = std::max(found, point.search_tokens_per_second);
    }
    EXPECT_NEAR(found, best, 1e-9 * best);
    EXPECT_GE(result.budgets.front().winner().search_tokens_per_second, 0.999 * best);
  }
}

/// 13B on 16 A800, with two strategies to start from.
TuneProblem real_problem(const LengthTrace& trace) {
  const ModelSpec model = load_model("llama-13b");
  const ClusterSpec cluster = load_cluster("a800-16");
  TuneProblem problem;
  problem.model = make_cost_model(model, cluster, default_profile(model, cluster),
                                  MemoryModel::published, {2, 8, 1});
  problem.start = {
      "start", {parse_strategies("2x(1,8,1); (1,8,1)+2x(1,4,1)", "test"), {2, 8, 1}}, 0};
  problem.trace = &trace;
  problem.sampling.context = 16384;
  problem.sampling.over_context = OverContext::truncate;
  problem.tokens_per_batch = {60000};
  return problem;
}

TuneOptions real_options(int threads) {
  TuneOptions options;
  options.search_iterations = 8;
  options.held_out_iterations = 6;
  options.most_strategies = 3;
  options.finalists = 8;
  options.generations = 2;
  options.threads = threads;
  return options;
}

TEST(Tune, GivesTheSameOnAnyNumberOfThreads) {
  const LengthTrace trace = skewed_trace(20000);
  const TuneProblem problem = real_problem(trace);
  const TuneResult one = tune(problem, real_options(1));
  const TuneResult three = tune(problem, real_options(3));
  const TuneBudget& a = one.budgets.front();
  const TuneBudget& b = three.budgets.front();
  ASSERT_EQ(a.frontier.size(), b.frontier.size());
  for (std::size_t i = 0; i < a.frontier.size(); ++i) {
    EXPECT_EQ(a.frontier[i].plan.set.strategies, b.frontier[i].plan.set.strategies);
    EXPECT_EQ(a.frontier[i].search_tokens_per_second, b.frontier[i].search_tokens_per_second);
    EXPECT_EQ(a.frontier[i].headroom_bytes, b.frontier[i].headroom_bytes);
    EXPECT_EQ(a.frontier[i].held_out.seconds, b.frontier[i].held_out.seconds);
    EXPECT_EQ(a.frontier[i].winner, b.frontier[i].winner);
  }
  EXPECT_EQ(a.simulated, b.simulated);
  EXPECT_EQ(a.gain.mean, b.gain.mean);
}

// The search's own numbers come from a table of single strategies; here the winner is planned and
// simulated as a set, over the batches searched and over the held-out ones.
TEST(Tune, NumbersAreThoseOfSimulatingThePlan) {
  const LengthTrace trace = skewed_trace(20000);
  const TuneProblem problem = real_problem(trace);
  const TuneOptions options = real_options(2);
  const TuneResult result = tune(problem, options);
  const TuneBudget& budget = result.budgets.front();
  ASSERT_EQ(std::count_if(budget.frontier.begin(), budget.frontier.end(),
                          [](const TunePoint& point) { return point.winner; }),
            1);
  for (const TunePoint& point : budget.frontier) {
    PolicySetup setup;
    setup.model = problem.model;
    setup.model.optimizer = point.plan.set.optimizer;
    setup.set = point.plan.set;
    setup.context = 16384;
    setup.assignment.max_tokens = point.plan.max_tokens;
    setup.assignment.count_parameter_traffic = true;
    BatchRun run{trace, problem.sampling, 8};
    run.sampling.tokens_per_batch = 60000;
    const double searched = run_policy("hydraulis", setup, run).result.summary.tokens_per_second;
    EXPECT_NEAR(point.search_tokens_per_second, searched, 1e-9 * searched);
    run.sampling.seed = options.held_out_seed;
    run.iterations = 6;
    const SimulatedRun held_out = run_policy("hydraulis", setup, run);
    ASSERT_EQ(point.held_out.seconds.size(), 6u);
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(point.held_out.seconds[i], held_out.result.iterations[i].time_seconds);
    }
    EXPECT_EQ(point.held_out.summary.tokens_per_second, held_out.result.summary.tokens_per_second);
  }
}

// The starting plan's strategies are candidates, so on the batches searched, with its own layout
// and as many strategies, nothing worse can come out.
TEST(Tune, IsNoWorseThanWhereItStarted) {
  const LengthTrace trace = skewed_trace(20000);
  TuneProblem problem = real_problem(trace);
  TuneOptions options = real_options(2);
  options.keep_layout = true;
  const TuneResult result = tune(problem, options);
  const double start =
      run_plan(problem.start, problem, drawn(problem, 0, 8), 2).summary.tokens_per_second;
  EXPECT_GE(result.budgets.front().winner().search_tokens_per_second, 0.999 * start);
}

TEST(Tune, NoPointOfTheFrontierIsBeatenByAnother) {
  const LengthTrace trace = skewed_trace(20000);
  const TuneResult result = tune(real_problem(trace), real_options(2));
  const auto& frontier = result.budgets.front().frontier;
  for (const TunePoint& a : frontier) {
    for (const TunePoint& b : frontier) {
      if (&a == &b) continue;
      EXPECT_FALSE(a.search_tokens_per_second >= b.search_tokens_per_second &&
                   a.headroom_bytes >= b.headroom_bytes &&
                   a.plan.set.strategies.size() <= b.plan.set.strategies.size());
    }
  }
  for (const TunePoint& point : frontier) EXPECT_GE(point.headroom_bytes, 0);
}

TEST(Tune, BudgetsAreComparedByThroughput) {
  const LengthTrace trace = skewed_trace(20000);
  TuneProblem problem = real_problem(trace);
  problem.tokens_per_batch = {30000, 90000};
  const TuneResult result = tune(problem, real_options(2));
  ASSERT_EQ(result.budgets.size(), 2u);
  const double chosen = result.budgets[result.best].winner().search_tokens_per_second;
  for (const TuneBudget& budget : result.budgets) {
    EXPECT_LE(budget.winner().search_tokens_per_second, chosen);
    EXPECT_EQ(budget.start.seconds.size(), 6u);
    EXPECT_EQ(budget.winner().held_out.seconds.size(), 6u);
  }
}

TEST(Tune, ACapThatIsGivenIsKept) {
  const LengthTrace trace = skewed_trace(20000);
  TuneProblem problem = real_problem(trace);
  problem.start.max_tokens = 20000;
  TuneOptions options = real_options(2);
  options.max_tokens = {20000};
  const TuneResult result = tune(problem, options);
  for (const TunePoint& point : result.budgets.front().frontier) {
    EXPECT_EQ(point.plan.max_tokens, 20000);
  }
}

TEST(Tune, AContextThatNothingHoldsIsInfeasible) {
  const LengthTrace trace = skewed_trace(20000);
  TuneProblem problem = real_problem(trace);
  problem.sampling.context = 1'000'000;
  EXPECT_THROW(tune(problem, real_options(1)), InfeasibleError);
}

TEST(Tune, OptionsThatCannotBeAreRefused) {
  const LengthTrace trace = skewed_trace(20000);
  const TuneProblem problem = real_problem(trace);
  TuneOptions options = real_options(1);
  options.held_out_seed = problem.sampling.seed;
  EXPECT_THROW(tune(problem, options), InputError);
  options = real_options(1);
  options.search_iterations = 0;
  EXPECT_THROW(tune(problem, options), InputError);
}

// Times of 1, 2, 3, 4, 5 s against 3, 3, 6, 9, 9 s: the ratio is 2, residuals against it are 1, -1,
// 0, 1, -1. Their standard error over a mean of 3 s is sqrt(4/4/5)/3; Student's t with four degrees
// of freedom is 2.776.
TEST(Tune, TheScheduleThatGainsMostAndFitsAlwaysIsChosen) {
  const auto variant = [](Schedule schedule, double gain, std::uint64_t fits, bool may_win) {
    TuneVariant one;
    one.schedule = {schedule};
    one.against_winner = gain;
    one.iterations = fits;
    one.may_win = may_win;
    return one;
  };
  const ScheduleChoice plain;
  EXPECT_EQ(best_schedule({}, 8), plain);
  EXPECT_EQ(best_schedule({variant(Schedule::gpipe, 0.0009, 8, true)}, 8), plain);
  EXPECT_EQ(best_schedule({variant(Schedule::gpipe, 0.2, 7, true)}, 8), plain);
  EXPECT_EQ(best_schedule({variant(Schedule::zero_bubble, 0.2, 8, false)}, 8), plain);
  EXPECT_EQ(best_schedule({variant(Schedule::gpipe, 0.01, 8, true),
                           variant(Schedule::zero_bubble, 0.03, 8, true),
                           variant(Schedule::unequal, 0.02, 8, true)},
                          8),
            ScheduleChoice{Schedule::zero_bubble});
}

TEST(Tune, PairedGainIsTheRatioWithItsInterval) {
  HeldOutRun fast;
  fast.seconds = {1, 2, 3, 4, 5};
  HeldOutRun slow;
  slow.seconds = {3, 3, 6, 9, 9};
  const PairedGain gain = paired_gain(fast, slow);
  EXPECT_NEAR(gain.mean, 1, 1e-12);
  const double margin = 2.776 * std::sqrt(1.0 / 5) / 3;
  EXPECT_NEAR(gain.high, 1 + margin, 0.01 * margin);
  EXPECT_NEAR(gain.low, 1 - margin, 0.01 * margin);
  EXPECT_EQ(gain.faster, 5u);
  // Alike but for a factor: no doubt about it.
  slow.seconds = {1.5, 3, 4.5, 6, 7.5};
  EXPECT_NEAR(paired_gain(fast, slow).low, 0.5, 1e-12);
  EXPECT_NEAR(paired_gain(fast, slow).high, 0.5, 1e-12);
}

// Where there are too many sets to try them all, the search by addition and exchange is compared
// with trying them all here.
TEST(Tune, ClimbingComesCloseToTheBestSet) {
  const LengthTrace trace = skewed_trace(20000);
  TuneProblem problem = real_problem(trace);
  problem.tokens_per_batch = {25000};
  std::vector<std::vector<Sequence>> sequences;
  for (const Batch& batch : drawn(problem, 0, 12)) sequences.push_back(sequences_of(batch));
  TuneGround ground;
  ground.model = problem.model;
  ground.iteration.costing.no_communication = true;
  TuneTable table(ground, sequences, 2);
  const Scheme schemes[] = {{1, 8, 1, Recompute::none, {}}, {1, 4, 1, Recompute::none, {}},
                            {1, 4, 2, Recompute::none, {}}, {1, 2, 2, Recompute::none, {}},
                            {1, 2, 4, Recompute::none, {}}, {1, 1, 4, Recompute::none, {}}};
  std::set<int> pool;
  // All multisets of pipelines of 8 devices and 4 devices on 16.
  for (const Scheme& a : schemes) {
    for (const Scheme& b : schemes) {
      Strategy strategy(static_cast<std::size_t>(8 / a.devices()), a);
      strategy.insert(strategy.end(), static_cast<std::size_t>(8 / b.devices()), b);
      pool.insert(table.add(strategy));
    }
  }
  const std::vector<int> all(pool.begin(), pool.end());
  table.evaluate(all, 12, TuneEffort::quick);
  constexpr int kMost = 5;
  const auto sets = choose_sets(table, all, 12, 16384, kMost);
  ASSERT_GE(sets.size(), 2u);
  double best_pair = std::numeric_limits<double>::infinity();
  double best_three = best_pair;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = i + 1; j < all.size(); ++j) {
      const std::vector<int> pair{all[i], all[j]};
      const bool pair_holds = table.holds(all[i], 16384) || table.holds(all[j], 16384);
      if (pair_holds) best_pair = std::min(best_pair, set_seconds(table, pair, 12));
      for (std::size_t k = j + 1; k < all.size(); ++k) {
        const std::vector<int> three{all[i], all[j], all[k]};
        if (!pair_holds && !table.holds(all[k], 16384)) continue;
        best_three = std::min(best_three, set_seconds(table, three, 12));
      }
    }
  }
  EXPECT_NEAR(sets[1].seconds, best_pair, 1e-9 * best_pair);
  EXPECT_LE(sets.back().seconds, std::min(best_pair, best_three) * 1.0005);
  if (sets.size() > 2) {
    EXPECT_GE(sets[2].seconds, best_three * (1 - 1e-12));
  }
}

}  // namespace
}  // namespace hydraulis
