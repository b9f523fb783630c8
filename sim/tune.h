#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/strategy.h"
#include "sim/iterations.h"
#include "sim/tune_table.h"
#include "sim/tune_time.h"
#include "traces/length_trace.h"
#include "traces/sampler.h"

namespace hydraulis {

/// A strategy set with what it is planned with: what a plan file holds.
struct TunePlan {
  std::string name;             ///< in reports
  StrategySet set;              ///< with the optimizer layout
  std::int64_t max_tokens = 0;  ///< cap on a micro-batch, tokens; 0: what memory allows
  ScheduleChoice schedule = {};
};

struct TuneProblem {
  CostModel model;                ///< its optimizer layout is replaced by that of each plan
  TunePlan start;                 ///< where the search begins; its strategies are candidates
  std::vector<TunePlan> against;  ///< only compared with
  const LengthTrace* trace = nullptr;
  /// Context, over-long sequences and the seed of the batches searched; token budgets are below.
  SamplerOptions sampling;
  std::vector<std::uint64_t> tokens_per_batch;  ///< one or more
  bool no_communication = false;
  NetworkUse network = NetworkUse::automatic;
  std::optional<CollectiveAlgorithm> collectives = {};  ///< as CostingOptions
};

/// How much is searched; every limit counts work, never time.
struct TuneOptions {
  std::uint64_t search_iterations = 256;    ///< batches that candidates are judged on
  std::uint64_t held_out_iterations = 100;  ///< batches that results are reported on
  std::uint64_t held_out_seed = 1;
  int most_strategies = 8;     ///< in a set
  int generations = 4;         ///< rounds of changed strategies
  std::size_t finalists = 24;  ///< strategies planned in full on every batch
  bool keep_layout = false;    ///< leave the optimizer layout as the starting plan has it
  /// Caps on a micro-batch to try, 0 being none; empty: none, and the context.
  std::vector<std::int64_t> max_tokens;
  /// That the winner may get instead of 1F1B; the others are tried and told. Training runs these.
  std::vector<ScheduleChoice> schedules = {{Schedule::gpipe}};
  int threads = 1;  ///< results are the same for any number
  /// Called between steps with the number of iterations simulated.
  std::function<void(std::uint64_t)> on_progress;
};

/// A plan run over the held-out batches, as `simulate` would.
struct HeldOutRun {
  std::vector<double> seconds;        ///< by iteration
  std::vector<std::uint64_t> tokens;  ///< by iteration
  RunSummary summary;
  TimeShares time;          ///< mean of an iteration
  double memory_bytes = 0;  ///< highest mark of any device
};

/// How much faster one run is than another over the same batches.
struct PairedGain {
  double mean = 0;  ///< tokens/s of the one ÷ tokens/s of the other − 1
  double low = 0;   ///< 95 % confidence interval over batches
  double high = 0;
  std::uint64_t faster = 0;  ///< batches on which it is faster
};

/// A plan on the frontier.
struct TunePoint {
  TunePlan plan;
  double search_tokens_per_second = 0;
  double headroom_bytes = 0;  ///< memory limit less the highest mark on the batches searched
  bool winner = false;
  HeldOutRun held_out;
};

/// A round of the search: candidates in, how many stay.
struct TuneRound {
  std::string what;
  std::uint64_t candidates = 0;
  std::uint64_t kept = 0;
  std::uint64_t iterations = 0;       ///< batches looked at
  double best_tokens_per_second = 0;  ///< of the best set, on those; 0: not known at this point
};

/// The winner executed otherwise than planned.
struct TuneVariant {
  std::string name;
  ScheduleChoice schedule;
  bool may_win = false;          ///< a plan can ask for it, and the options allow that
  double tokens_per_second = 0;  ///< over the batches searched
  double against_winner = 0;     ///< throughput ÷ the winner's on the same batches − 1
  std::uint64_t iterations = 0;  ///< that fit the memory; the others are left out
};

/// A plan that is compared with, on the winner's batches.
struct TuneRival {
  TunePlan plan;
  HeldOutRun held_out;
  PairedGain gain;  ///< of the winner over it
};

/// The search for one token budget.
struct TuneBudget {
  std::uint64_t tokens_per_batch = 0;
  std::vector<TunePoint> frontier;  ///< fewest strategies first; held-out runs of the winner alone
                                    ///< unless this is the budget that won
  std::vector<TuneRound> rounds;
  HeldOutRun start;  ///< the starting plan on the held-out batches of this budget
  PairedGain gain;   ///< of the winner over it
  std::uint64_t simulated = 0;

  const TunePoint& winner() const;
};

struct TuneResult {
  std::vector<TuneBudget> budgets;  ///< in the order asked for
  std::size_t best = 0;             ///< the budget with most tokens/s on the batches searched
  std::vector<TuneRival> rivals;    ///< starting plan first
  std::vector<TuneVariant> variants;
  PairedGain schedule_gain;  ///< of the winner's schedule over 1F1B, held out; 0 where it is 1F1B
  std::vector<OptimizerLayout> layouts;  ///< that were tried
  std::vector<std::int64_t> caps;        ///< that were tried
};

/// Searches strategy sets, optimizer layouts and caps on a micro-batch with the simulator:
///   1. candidates: starting plan, homogeneous strategies, the dynamic program's, mixtures; planned
///      without local search on a growing share of the batches, the less hopeful half dropped each
///      time (successive halving; every candidate sees the same batches);
///   2. optimizer layouts by successive halving, each judged by the best set it allows;
///   3. the finalists planned and simulated in full where they come near the best; since an
///   iteration does not
///      depend on the set's other strategies, the best set of each size is a selection from this
///      table (all sets where few, else greedy with exchanges);
///   4. generations: pipelines of chosen strategies split, merged and swapped, and the dynamic
///      program's strategies for the batches that are served worst;
///   5. caps on a micro-batch;
///   6. schedules, tried on the winner.
/// Of sets within 0.1 % of the best the one with the fewest strategies wins: each costs planning
/// time in every iteration. Held-out batches are drawn with another seed and decide nothing.
/// Throws InfeasibleError when nothing holds the context, InputError for options out of range.
TuneResult tune(const TuneProblem& problem, const TuneOptions& options);

/// What the iterations of plans with this layout and cap are planned and simulated with.
TuneGround ground_of(const TuneProblem& problem, const OptimizerLayout& layout,
                     std::int64_t max_tokens, const ScheduleChoice& schedule = {});

/// Runs a plan over batches: assigned and simulated in full, each iteration as `simulate` has it.
/// Throws InfeasibleError when a batch does not fit.
HeldOutRun run_plan(const TunePlan& plan, const TuneProblem& problem,
                    const std::vector<Batch>& batches, int threads);

/// The plan's iterations executed under other schedules, each in the order of micro-batches that is
/// searched for it, and under 1F1B with the longest micro-batch first. Iterations whose
/// micro-batches in flight the memory model does not allow are left out. `may_win`: schedules that
/// a winner may get.
std::vector<TuneVariant> try_variants(const TunePlan& plan, const TuneProblem& problem,
                                      const std::vector<Batch>& batches,
                                      const std::vector<ScheduleChoice>& may_win, int threads);

/// The schedule that is worth writing into the plan: of those that may win and fit every one of the
/// `batches` tried the fastest, if it gains more than 0.1 %; else 1F1B.
ScheduleChoice best_schedule(const std::vector<TuneVariant>& variants, std::uint64_t batches);

/// Ratio of throughputs with a confidence interval from paired differences (delta method, Student's
/// t); both ran over the same batches, at least two.
PairedGain paired_gain(const HeldOutRun& run, const HeldOutRun& other);

}  // namespace hydraulis
