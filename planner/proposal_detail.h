#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/proposal.h"

namespace hydraulis::detail {

/// A strategy with the lengths it was made for and the time it takes for them.
struct Candidate {
  Strategy strategy;
  std::int64_t upto = 0;  ///< tokens
  double bottleneck = 0;  ///< seconds
};

/// The pipelines of a solution, those for the longest micro-batches first. Devices it leaves over
/// get further pipelines: of the slowest interval whose scheme fits, else of the scheme that spends
/// the least device time on a short token; of the ways to spend the devices, those that leave the
/// fewest idle. More pipelines never make a solution slower.
Strategy use_all_devices(const ProposalProblem& problem, std::span<const int> schemes,
                         const GridSolution& solution);

/// At most `most` of the candidates: the first `keep` and the longest one stay, the others are
/// chosen to minimise the expected time of a batch when each batch uses the shortest candidate that
/// was made for its longest sequence. Candidates after `keep` must stand longest first.
std::vector<Candidate> thin_out(const ProposalProblem& problem, std::vector<Candidate> candidates,
                                std::size_t keep, std::size_t most);

}  // namespace hydraulis::detail
