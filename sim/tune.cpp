#include "sim/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>

#include "base/error.h"
#include "planner/policy.h"
#include "sim/tune_candidates.h"
#include "sim/tune_select.h"
#include "sim/tune_table.h"

namespace hydraulis {
namespace {

/// A set with more strategies must be this much faster.
constexpr double kWorthAStrategy = 0.999;
/// Generations end when one gains less than this.
constexpr double kWorthAGeneration = 0.9999;

struct Drawn {
  std::vector<Batch> batches;
  std::vector<std::vector<Sequence>> sequences;
  double tokens = 0;
  std::int64_t shortest_reach = 0;  ///< of the longest sequences of the batches, the shortest
};

Drawn draw(const TuneProblem& problem, std::uint64_t tokens_per_batch, std::uint64_t seed,
           std::uint64_t count) {
  SamplerOptions sampling = problem.sampling;
  sampling.tokens_per_batch = tokens_per_batch;
  sampling.seed = seed;
  Sampler sampler(*problem.trace, sampling);
  Drawn drawn;
  for (std::uint64_t i = 0; i < count; ++i) {
    drawn.batches.push_back(sampler.next());
    const Batch& batch = drawn.batches.back();
    drawn.sequences.push_back(sequences_of(batch));
    drawn.tokens += static_cast<double>(batch.tokens());
    const std::int64_t longest = *std::max_element(batch.lengths.begin(), batch.lengths.end());
    if (i == 0 || longest < drawn.shortest_reach) drawn.shortest_reach = longest;
  }
  return drawn;
}

std::string name_of(const OptimizerLayout& layout) {
  return fmt::format("dp{} tp{} pp{}", layout.dp, layout.tp, layout.pp);
}

/// The search for one token budget. Steps run one after the other; only the filling of tables runs
/// on several threads.
class BudgetSearch {
 public:
  BudgetSearch(const TuneProblem& problem, const TuneOptions& options,
               std::uint64_t tokens_per_batch)
      : problem_(problem),
        options_(options),
        drawn_(draw(problem, tokens_per_batch, problem.sampling.seed, options.search_iterations)),
        context_(static_cast<std::int64_t>(problem.sampling.context)) {
    budget_.tokens_per_batch = tokens_per_batch;
  }

  TuneBudget run(std::vector<OptimizerLayout>& layouts_tried, std::vector<std::int64_t>& caps) {
    const std::vector<Strategy> hopeful = first_strategies();
    const OptimizerLayout layout = race_layouts(hopeful, layouts_tried);
    const auto table = make_table(layout, problem_.start.max_tokens);
    std::vector<int> pool = finals(*table, hopeful);
    std::vector<TuneChoice> sets = choose(*table, pool);
    if (sets.empty()) {
      throw InfeasibleError(
          "infeasible: no candidate strategy trains every batch searched with a context of {} "
          "tokens; lower --context, or use more devices",
          context_);
    }
    generations(*table, pool, sets);
    keep_points(*table, sets);
    for (const std::int64_t cap : caps_to_try(*table, pool, caps)) try_cap(*table, pool, cap);
    finish();
    return std::move(budget_);
  }

  const Drawn& drawn() const { return drawn_; }

 private:
  std::unique_ptr<TuneTable> make_table(const OptimizerLayout& layout, std::int64_t cap) const {
    return std::make_unique<TuneTable>(ground_of(problem_, layout, cap), drawn_.sequences,
                                       options_.threads);
  }

  TunePoolRequest pool_request(const TuneTable& table) const {
    TunePoolRequest request;
    request.model = table.ground().model;
    request.context = context_;
    request.max_tokens = table.ground().assignment.max_tokens;
    request.tokens_per_batch = static_cast<std::int64_t>(budget_.tokens_per_batch);
    request.shortest_reach = drawn_.shortest_reach;
    return request;
  }

  void evaluate(TuneTable& table, std::span<const int> strategies, std::size_t batches,
                TuneEffort effort) {
    count(table, [&] { table.evaluate(strategies, batches, effort); });
  }

  template <typename Work>
  void count(TuneTable& table, Work&& work) {
    const std::uint64_t before = table.simulated();
    work();
    budget_.simulated += table.simulated() - before;
    if (options_.on_progress) options_.on_progress(budget_.simulated);
  }

  double throughput(double seconds, std::size_t batches) const {
    double tokens = 0;
    for (std::size_t b = 0; b < batches; ++b) {
      tokens += static_cast<double>(drawn_.batches[b].tokens());
    }
    return std::isfinite(seconds) && seconds > 0 ? tokens / seconds : 0;
  }

  void note(std::string what, std::size_t candidates, std::size_t kept, std::size_t batches,
            double seconds) {
    budget_.rounds.push_back(
        {std::move(what), candidates, kept, batches, throughput(seconds, batches)});
  }

  std::vector<int> add_all(TuneTable& table, std::span<const Strategy> strategies) const {
    std::set<int> indices;
    for (const Strategy& strategy : strategies) indices.insert(table.add(strategy));
    return {indices.begin(), indices.end()};
  }

  /// Successive halving of strategies on ever more batches; `least` stay.
  std::vector<int> halve(TuneTable& table, std::vector<int> pool, std::size_t least,
                         const std::string& what) {
    const std::size_t all = drawn_.batches.size();
    constexpr std::size_t kRounds = 3;
    for (std::size_t round = 0; round < kRounds; ++round) {
      const std::size_t batches = std::max<std::size_t>(1, all >> (kRounds - 1 - round));
      evaluate(table, pool, batches, TuneEffort::quick);
      const std::size_t before = pool.size();
      const std::size_t keep =
          round + 1 == kRounds ? least : std::max(least, (pool.size() + 1) / 2);
      pool = promising(table, pool, batches, context_, keep);
      note(what, before, pool.size(), batches, 0);
    }
    std::sort(pool.begin(), pool.end());
    return pool;
  }

  /// The strategies that go into the race of optimizer layouts: those that stay on the starting
  /// plan's.
  std::vector<Strategy> first_strategies() {
    const auto table = make_table(problem_.start.set.optimizer, problem_.start.max_tokens);
    std::vector<int> pool = add_all(*table, problem_.start.set.strategies);
    for (const int s :
         add_all(*table, candidate_strategies(*problem_.trace, pool_request(*table)))) {
      if (std::find(pool.begin(), pool.end(), s) == pool.end()) pool.push_back(s);
    }
    std::vector<Strategy> result = problem_.start.set.strategies;
    for (const int s :
         halve(*table, std::move(pool), 2 * options_.finalists, "strategies, starting layout")) {
      result.push_back(table->strategy(s));
    }
    return result;
  }

  /// Layouts judged by the best set that the strategies allow, half of them dropped on every
  /// doubling of the batches. Quick plans will do: the layout changes the traffic, hardly the
  /// plans.
  OptimizerLayout race_layouts(const std::vector<Strategy>& strategies,
                               std::vector<OptimizerLayout>& tried) {
    if (options_.keep_layout) return problem_.start.set.optimizer;
    struct Runner {
      OptimizerLayout layout;
      std::unique_ptr<TuneTable> table;
      std::vector<int> pool;
      double seconds = 0;
    };
    std::vector<Runner> runners;
    tried = optimizer_layouts(problem_.model);
    for (const OptimizerLayout& layout : tried) {
      Runner runner{layout, make_table(layout, problem_.start.max_tokens), {}, 0};
      runner.pool = add_all(*runner.table, strategies);
      runners.push_back(std::move(runner));
    }
    for (std::size_t batches = std::min<std::size_t>(8, drawn_.batches.size()); runners.size() > 1;
         batches = std::min(2 * batches, drawn_.batches.size())) {
      for (Runner& runner : runners) {
        evaluate(*runner.table, runner.pool, batches, TuneEffort::quick);
        const auto sets =
            choose_sets(*runner.table, runner.pool, batches, context_, options_.most_strategies);
        runner.seconds =
            sets.empty() ? std::numeric_limits<double>::infinity() : sets.back().seconds;
      }
      std::stable_sort(runners.begin(), runners.end(),
                       [](const Runner& a, const Runner& b) { return a.seconds < b.seconds; });
      const std::size_t before = runners.size();
      runners.resize((before + 1) / 2);
      note("optimizer layouts", before, runners.size(), batches, runners.front().seconds);
    }
    return runners.front().layout;
  }

  /// Candidates of a layout, thinned and then planned in full on every batch.
  std::vector<int> finals(TuneTable& table, const std::vector<Strategy>& hopeful) {
    std::vector<int> pool = add_all(table, hopeful);
    try {
      for (const int s :
           add_all(table, candidate_strategies(*problem_.trace, pool_request(table)))) {
        if (std::find(pool.begin(), pool.end(), s) == pool.end()) pool.push_back(s);
      }
    } catch (const InfeasibleError&) {
      // This layout holds no sequence of the context in any scheme; the sets found will say so.
    }
    pool = halve(table, std::move(pool), options_.finalists,
                 "strategies, " + name_of(table.ground().model.optimizer));
    evaluate(table, pool, drawn_.batches.size(), TuneEffort::full);
    return pool;
  }

  /// Best sets of each size whose every choice is exact.
  std::vector<TuneChoice> choose(TuneTable& table, const std::vector<int>& pool) {
    const std::size_t batches = drawn_.batches.size();
    std::vector<TuneChoice> sets;
    for (bool settled = false; !settled;) {
      sets = choose_sets(table, pool, batches, context_, options_.most_strategies);
      const std::uint64_t before = table.simulated();
      count(table, [&] {
        for (const TuneChoice& set : sets) table.settle(set.strategies, batches);
      });
      settled = table.simulated() == before;
    }
    return sets;
  }

  /// Batches by the device time they take for each FLOP, worst first.
  std::vector<std::size_t> worst_served(const TuneTable& table, const TuneChoice& set) const {
    std::vector<std::pair<double, std::size_t>> served;
    for (std::size_t b = 0; b < drawn_.batches.size(); ++b) {
      double squares = 0;
      double tokens = 0;
      for (const std::uint32_t length : drawn_.batches[b].lengths) {
        squares += static_cast<double>(length) * length;
        tokens += length;
      }
      const double seconds = table.cell(chosen_strategy(table, set.strategies, b), b).simulated;
      served.emplace_back(-seconds / training_flops(problem_.model.model, tokens, squares), b);
    }
    std::sort(served.begin(), served.end());
    std::vector<std::size_t> result;
    for (const auto& [rank, batch] : served) result.push_back(batch);
    return result;
  }

  /// Strategies near the chosen ones that the table does not know yet.
  std::vector<int> newcomers(TuneTable& table, const std::vector<int>& pool,
                             const std::vector<TuneChoice>& sets) const {
    std::set<Scheme> schemes;
    for (const int s : pool) {
      schemes.insert(table.strategy(s).begin(), table.strategy(s).end());
    }
    const std::vector<Scheme> known(schemes.begin(), schemes.end());
    std::set<int> parents;
    for (const TuneChoice& set : sets) {
      parents.insert(set.strategies.begin(), set.strategies.end());
    }
    std::vector<Strategy> candidates;
    for (const int parent : parents) {
      for (Strategy& next : neighbours(table.strategy(parent), known)) {
        candidates.push_back(std::move(next));
      }
    }
    constexpr std::size_t kWorstBatches = 8;
    constexpr std::size_t kFromEach = 4;
    const std::vector<std::size_t> worst = worst_served(table, sets.back());
    for (std::size_t i = 0; i < std::min(kWorstBatches, worst.size()); ++i) {
      const auto& lengths = drawn_.batches[worst[i]].lengths;
      for (Strategy& next : strategies_for_batch(lengths, pool_request(table), kFromEach)) {
        candidates.push_back(std::move(next));
      }
    }
    std::set<int> found;
    for (const Strategy& candidate : candidates) {
      const auto before = static_cast<int>(table.strategies());
      const int index = table.add(candidate);
      if (index >= before) found.insert(index);
    }
    return {found.begin(), found.end()};
  }

  /// Those of the newcomers that help the best set most on the first `batches`, were they planned
  /// in full.
  std::vector<int> most_helpful(const TuneTable& table, const std::vector<int>& newcomers,
                                const TuneChoice& set, std::size_t batches,
                                std::size_t keep) const {
    // Local search shortens a plan by about this much.
    constexpr double kSearchGains = 1.02;
    std::vector<std::pair<double, int>> helps;
    for (const int s : newcomers) {
      double gain = 0;
      for (std::size_t b = 0; b < batches; ++b) {
        const double now = table.cell(chosen_strategy(table, set.strategies, b), b).planned;
        gain += std::max(0.0, now * kSearchGains - table.cell(s, b).planned);
      }
      if (gain > 0) helps.emplace_back(-gain, s);
    }
    std::sort(helps.begin(), helps.end());
    std::vector<int> result;
    for (const auto& [gain, s] : helps) {
      if (result.size() < keep) result.push_back(s);
    }
    return result;
  }

  void generations(TuneTable& table, std::vector<int>& pool, std::vector<TuneChoice>& sets) {
    const std::size_t all = drawn_.batches.size();
    note("sets, " + name_of(table.ground().model.optimizer), pool.size(),
         sets.back().strategies.size(), all, sets.back().seconds);
    for (int g = 1; g <= options_.generations; ++g) {
      const double before = sets.back().seconds;
      std::vector<int> fresh = newcomers(table, pool, sets);
      const std::size_t candidates = fresh.size();
      const std::size_t some = std::max<std::size_t>(1, all / 4);
      evaluate(table, fresh, some, TuneEffort::quick);
      fresh = most_helpful(table, fresh, sets.back(), some, 2 * options_.finalists);
      evaluate(table, fresh, all, TuneEffort::quick);
      fresh = most_helpful(table, fresh, sets.back(), all, options_.finalists / 2);
      evaluate(table, fresh, all, TuneEffort::full);
      pool.insert(pool.end(), fresh.begin(), fresh.end());
      std::sort(pool.begin(), pool.end());
      sets = choose(table, pool);
      note(fmt::format("generation {}", g), candidates, fresh.size(), all, sets.back().seconds);
      if (!(sets.back().seconds < before * kWorthAGeneration)) break;
    }
  }

  void keep_points(const TuneTable& table, const std::vector<TuneChoice>& sets) {
    for (const TuneChoice& set : sets) {
      TunePoint point;
      for (const int s : set.strategies) point.plan.set.strategies.push_back(table.strategy(s));
      point.plan.set.optimizer = table.ground().model.optimizer;
      point.plan.max_tokens = table.ground().assignment.max_tokens;
      point.plan.name = "tuned";
      point.search_tokens_per_second = throughput(set.seconds, drawn_.batches.size());
      double memory = 0;
      for (std::size_t b = 0; b < drawn_.batches.size(); ++b) {
        memory =
            std::max(memory, table.cell(chosen_strategy(table, set.strategies, b), b).memory_bytes);
      }
      point.headroom_bytes = memory_limit_bytes(table.ground().model) - memory;
      points_.push_back(std::move(point));
    }
  }

  /// Caps other than the one searched with that change anything for the schemes in the pool.
  std::vector<std::int64_t> caps_to_try(const TuneTable& table, const std::vector<int>& pool,
                                        std::vector<std::int64_t>& tried) const {
    const std::int64_t searched = table.ground().assignment.max_tokens;
    std::int64_t longest = 0;
    for (const int s : pool) {
      for (const Scheme& scheme : table.strategy(s)) {
        longest = std::max(longest, max_tokens(table.ground().model, scheme));
      }
    }
    std::vector<std::int64_t> wanted = options_.max_tokens;
    if (wanted.empty()) wanted = {0, context_};
    tried = {searched};
    std::vector<std::int64_t> result;
    for (const std::int64_t cap : wanted) {
      if (std::find(tried.begin(), tried.end(), cap) != tried.end()) continue;
      if (cap != 0 && (cap < context_ || cap >= longest)) continue;
      tried.push_back(cap);
      result.push_back(cap);
    }
    return result;
  }

  void try_cap(const TuneTable& uncapped, const std::vector<int>& pool, std::int64_t cap) {
    const auto table = make_table(uncapped.ground().model.optimizer, cap);
    std::vector<int> own;
    for (const int s : pool) own.push_back(table->add(uncapped.strategy(s)));
    evaluate(*table, own, drawn_.batches.size(), TuneEffort::quick);
    own = promising(*table, own, drawn_.batches.size(), context_, options_.finalists / 2);
    std::sort(own.begin(), own.end());
    evaluate(*table, own, drawn_.batches.size(), TuneEffort::full);
    const std::vector<TuneChoice> sets = choose(*table, own);
    note(cap == 0 ? "micro-batches as memory allows"
                  : fmt::format("micro-batches of at most {} tokens", cap),
         own.size(), sets.empty() ? 0 : sets.back().strategies.size(), drawn_.batches.size(),
         sets.empty() ? 0 : sets.back().seconds);
    keep_points(*table, sets);
  }

  /// Keeps the points that no other one beats in throughput, headroom and number of strategies, and
  /// marks the winner.
  void finish() {
    const auto as_good = [](const TunePoint& a, const TunePoint& b) {
      return a.search_tokens_per_second >= b.search_tokens_per_second &&
             a.headroom_bytes >= b.headroom_bytes &&
             a.plan.set.strategies.size() <= b.plan.set.strategies.size();
    };
    for (std::size_t i = 0; i < points_.size(); ++i) {
      bool beaten = false;
      for (std::size_t j = 0; j < points_.size() && !beaten; ++j) {
        // Of equals the first stays: it has the looser cap.
        beaten = j != i && as_good(points_[j], points_[i]) &&
                 (j < i || !as_good(points_[i], points_[j]));
      }
      if (!beaten) budget_.frontier.push_back(points_[i]);
    }
    std::stable_sort(budget_.frontier.begin(), budget_.frontier.end(),
                     [](const TunePoint& a, const TunePoint& b) {
                       const std::size_t x = a.plan.set.strategies.size();
                       const std::size_t y = b.plan.set.strategies.size();
                       return x != y ? x < y
                                     : a.search_tokens_per_second > b.search_tokens_per_second;
                     });
    double most = 0;
    for (const TunePoint& point : budget_.frontier) {
      most = std::max(most, point.search_tokens_per_second);
    }
    const auto winner = std::find_if(
        budget_.frontier.begin(), budget_.frontier.end(), [most](const TunePoint& point) {
          return point.search_tokens_per_second >= kWorthAStrategy * most;
        });
    winner->winner = true;
  }

  const TuneProblem& problem_;
  const TuneOptions& options_;
  Drawn drawn_;
  std::int64_t context_;
  TuneBudget budget_;
  std::vector<TunePoint> points_;
};

void check(const TuneProblem& problem, const TuneOptions& options) {
  const auto require = [](bool fine, const char* what) {
    if (!fine) throw InputError("tune: {}", what);
  };
  require(problem.trace != nullptr, "a trace is needed");
  require(problem.model.cluster.groups.empty(),
          "clusters with groups of unlike nodes are planned by `plan` alone");
  require(!problem.tokens_per_batch.empty(), "a token budget per batch is needed");
  require(!problem.start.set.strategies.empty(), "the starting plan has no strategies");
  require(options.search_iterations >= 1, "at least one iteration to search on is needed");
  require(options.held_out_iterations >= 2, "at least two held-out iterations are needed");
  require(options.held_out_seed != problem.sampling.seed,
          "held-out iterations need a seed other than the one searched with");
  require(options.most_strategies >= 1, "a set needs at least one strategy");
  require(options.finalists >= 2, "at least two finalists are needed");
}

}  // namespace

const TunePoint& TuneBudget::winner() const {
  return *std::find_if(frontier.begin(), frontier.end(),
                       [](const TunePoint& point) { return point.winner; });
}

TuneResult tune(const TuneProblem& problem, const TuneOptions& options) {
  check(problem, options);
  TuneResult result;
  for (const std::uint64_t tokens : problem.tokens_per_batch) {
    BudgetSearch search(problem, options, tokens);
    result.budgets.push_back(search.run(result.layouts, result.caps));
  }
  for (std::size_t i = 1; i < result.budgets.size(); ++i) {
    if (result.budgets[i].winner().search_tokens_per_second >
        result.budgets[result.best].winner().search_tokens_per_second) {
      result.best = i;
    }
  }
  for (std::size_t i = 0; i < result.budgets.size(); ++i) {
    TuneBudget& budget = result.budgets[i];
    const Drawn held_out =
        draw(problem, budget.tokens_per_batch, options.held_out_seed, options.held_out_iterations);
    const auto run = [&](const TunePlan& plan) {
      HeldOutRun done = run_plan(plan, problem, held_out.batches, options.threads);
      budget.simulated += done.seconds.size();
      if (options.on_progress) options.on_progress(budget.simulated);
      return done;
    };
    budget.start = run(problem.start);
    for (TunePoint& point : budget.frontier) {
      if (point.winner || i == result.best) point.held_out = run(point.plan);
    }
    budget.gain = paired_gain(budget.winner().held_out, budget.start);
    if (i != result.best) continue;
    constexpr std::uint64_t kMostTried = 64;
    const Drawn searched = draw(problem, budget.tokens_per_batch, problem.sampling.seed,
                                std::min(options.search_iterations, kMostTried));
    result.variants = try_variants(budget.winner().plan, problem, searched.batches,
                                   options.schedules, options.threads);
    const ScheduleChoice schedule = best_schedule(result.variants, searched.batches.size());
    if (schedule != ScheduleChoice{}) {
      TunePoint& point = *std::find_if(budget.frontier.begin(), budget.frontier.end(),
                                       [](const TunePoint& one) { return one.winner; });
      const HeldOutRun before = std::move(point.held_out);
      point.plan.schedule = schedule;
      point.held_out = run(point.plan);
      result.schedule_gain = paired_gain(point.held_out, before);
      const HeldOutRun again = run_plan(
          point.plan, problem,
          draw(problem, budget.tokens_per_batch, problem.sampling.seed, options.search_iterations)
              .batches,
          options.threads);
      point.search_tokens_per_second = again.summary.tokens_per_second;
      point.headroom_bytes = memory_limit_bytes(problem.model) - again.memory_bytes;
      budget.gain = paired_gain(point.held_out, budget.start);
    }
    const HeldOutRun& winner = budget.winner().held_out;
    result.rivals.push_back({problem.start, budget.start, budget.gain});
    for (const TunePlan& plan : problem.against) {
      TuneRival rival{plan, run(plan), {}};
      rival.gain = paired_gain(winner, rival.held_out);
      result.rivals.push_back(std::move(rival));
    }
  }
  return result;
}

}  // namespace hydraulis
