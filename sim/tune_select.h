#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/tune_table.h"

namespace hydraulis {

/// A set of strategies of a table (ascending indices) and what it takes.
struct TuneChoice {
  std::vector<int> strategies;
  double seconds = 0;  ///< simulated, summed over the batches looked at
};

/// The set's strategy that the planner chooses for a batch: least planned time; -1 when none holds
/// it.
int chosen_strategy(const TuneTable& table, std::span<const int> set, std::size_t batch);

/// Simulated seconds of the set over the first `batches` batches; infinity when one is not held.
double set_seconds(const TuneTable& table, std::span<const int> set, std::size_t batches);

/// Number of sets up to which choose_sets() tries them all.
inline constexpr std::uint64_t kMostExhaustedSets = 20'000;

/// The best set found of each size 1 … `most` among `pool`, over the first `batches` batches; each
/// has a strategy that holds `context` tokens. Tries all sets where these are at most
/// kMostExhaustedSets, else adds the strategy that helps most and exchanges while that helps, from
/// several starts. Sizes at which no set is feasible, and sizes that are no better than a smaller
/// one, are left out.
std::vector<TuneChoice> choose_sets(const TuneTable& table, std::span<const int> pool,
                                    std::size_t batches, std::int64_t context, int most);

/// At most `keep` strategies of the pool worth a closer look, best first: those that greedy
/// addition takes, then by how close they come to the best of each batch. The first strategy that
/// holds the context and is best on its own is among them.
std::vector<int> promising(const TuneTable& table, std::span<const int> pool, std::size_t batches,
                           std::int64_t context, std::size_t keep);

}  // namespace hydraulis
