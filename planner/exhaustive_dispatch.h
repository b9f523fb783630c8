#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "planner/packing.h"

namespace hydraulis {

/// Whether sequences and pipelines are few enough for dispatch_exhaustively() to take at most a few
/// milliseconds.
bool few_enough_to_exhaust(std::span<const PipelineCost> pipelines, std::size_t sequences);

/// Packs every subset of the sequences on every kind of pipeline and returns the distribution over
/// pipelines (indices into `sequences`) with the least makespan: the best there is where packing is
/// exact. On ties early pipelines take fewer sequences. Precondition: few_enough_to_exhaust(), and
/// some pipeline holds every sequence.
std::vector<std::vector<int>> dispatch_exhaustively(std::span<const PipelineCost> pipelines,
                                                    std::span<const Sequence> sequences,
                                                    const PackingEffort& effort);

}  // namespace hydraulis
