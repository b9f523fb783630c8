#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/strategy.h"
#include "traces/length_trace.h"

namespace hydraulis {

/// A scheme the planner may use: its slowest stage's time and the longest micro-batch it can hold.
struct SchemeOption {
  Scheme scheme;
  StageCost cost;
  std::int64_t max_tokens = 0;  ///< tokens; 0: does not fit at all
};

/// How often a length occurs in a batch; counts may be fractions (expectations).
struct LengthCount {
  std::int64_t length = 0;  ///< tokens
  double count = 0;
};

/// The dynamic program over devices × lengths of the published strategy generator:
///
///   T[n][s] = min( T[n - device_step][s],
///                  min over scheme k that holds s, interval (s', s], replicas d ≥ 1 of
///                    max( T[n - d·g_k][s'], cost_k((s', s]) / d ) )
///   cost_k(I) = Σ count·(a s² + b s + c) + (pp - 1)·(a L² + b L + c),  L the longest length in I
///
/// s and s' on the grid 0, length_step, 2·length_step, …, context; n on multiples of device_step
/// (devices in between count as the multiple below); g_k the scheme's devices; T[n][0] = 0. An
/// interval without sequences costs nothing but still needs a pipeline.
struct ProposalProblem {
  std::vector<LengthCount> histogram;  ///< lengths in any order, 1 … context
  std::vector<SchemeOption> schemes;
  int devices = 0;
  OptimizerLayout optimizer;
  std::int64_t context = 0;        ///< tokens
  std::int64_t length_step = 128;  ///< tokens
  int device_step = 1;
  int max_strategies = 0;  ///< most strategies in the set; 0: every distinct one
};

/// Sequences of the lengths in (from, to] trained by `replicas` pipelines of one scheme.
struct LengthInterval {
  int scheme = 0;  ///< index in ProposalProblem::schemes
  int replicas = 0;
  std::int64_t from = 0;  ///< tokens, exclusive
  std::int64_t to = 0;    ///< tokens, inclusive
  double seconds = 0;     ///< time of each pipeline: cost of the interval / replicas
};

/// The best use of all devices for the sequences of at most `upto` tokens.
struct GridSolution {
  std::int64_t upto = 0;                  ///< tokens
  double bottleneck_seconds = 0;          ///< T[devices][upto]
  std::vector<LengthInterval> intervals;  ///< longest first; empty when nothing fits
};

/// A scheme that no strategy uses, and why.
struct DroppedScheme {
  Scheme scheme;
  std::string reason;
};

struct Proposal {
  StrategySet set;
  std::vector<std::int64_t> upto;      ///< by strategy: lengths it was made for (tokens)
  std::vector<double> bottleneck;      ///< by strategy: objective for those lengths (seconds)
  std::vector<DroppedScheme> dropped;  ///< schemes left out before the search
  double seconds = 0;                  ///< measured time of the proposal
};

/// Indices of the schemes worth trying; reasons for the others go to `dropped` if given.
std::vector<int> useful_schemes(const ProposalProblem& problem,
                                std::vector<DroppedScheme>* dropped = nullptr);

/// Solves the dynamic program exactly (to about 1e-13 relative) for all devices and every grid
/// point, shortest first, using the given schemes. Stops before the first grid point that cannot be
/// served.
///
/// T[N][s] is found through its inverse: the fewest devices D[s](τ) that serve every length up to s
/// within τ seconds obey D[s](τ) = min over k, s' of D[s'](τ) + g_k·⌈cost_k((s', s]) / τ⌉, a
/// program whose size does not depend on the number of devices. Memory O(grid · schemes).
std::vector<GridSolution> solve_grid(const ProposalProblem& problem, std::span<const int> schemes);

/// Proposes a strategy set: strategy 0 is the homogeneous one of the optimizer layout (where its
/// scheme is among the options), then the solutions of every grid point, longest first, without
/// duplicates and without those that another one matches in time for longer sequences. Devices that
/// a solution leaves over get further pipelines, which can only shorten it.
/// Throws InputError for values outside their range, InfeasibleError when the context cannot be
/// held: which limit, by how much, and the nearest context that fits.
Proposal propose_strategies(const ProposalProblem& problem);

struct ProposalOptions {
  std::int64_t length_step = 0;       ///< tokens; 0: 128, or more for contexts beyond 64K
  int device_step = 0;                ///< 0: 1
  std::int64_t context = 0;           ///< tokens; longer sequences count as this long
  std::int64_t max_tokens_cap = 0;    ///< cap on a micro-batch in tokens; 0: what memory allows
  std::int64_t tokens_per_batch = 0;  ///< the histogram is scaled to it; 0: the whole trace
  int max_strategies = 0;             ///< 0: every distinct one
};

/// Every scheme the cost model knows, with its slowest stage and longest micro-batch.
std::vector<SchemeOption> scheme_options(const CostModel& model, std::int64_t max_tokens_cap = 0);

/// Lengths of a trace as counts in a batch of `tokens_per_batch` tokens (0: unscaled), those over
/// the context counted at the context. Throws InputError for an empty trace.
std::vector<LengthCount> length_histogram(const LengthTrace& trace, std::int64_t context,
                                          std::int64_t tokens_per_batch = 0);

/// The strategy set for a trace on the cost model's cluster, model and optimizer layout.
/// Throws as propose_strategies does.
Proposal propose(const LengthTrace& trace, const CostModel& model, const ProposalOptions& options);

}  // namespace hydraulis
