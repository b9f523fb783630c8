#pragma once

#include <span>
#include <vector>

#include "planner/assignment.h"

namespace hydraulis {

/// Deals the sequences of several batches anew over as many batches of about as many tokens each,
/// so that the sum of their times, each on its best strategy of the set, is small: the sequences
/// that only strategies for long ones hold are gathered in a few batches, and the others run on
/// strategies for short ones, or they are spread evenly. Ways to do so (which sequences count as
/// long, in how many batches) are compared by lower bounds, the best few and the batches as drawn
/// by assigning them with little search, parameter traffic included. No batch gets more tokens than
/// the largest that was drawn. Deterministic; work bounded by batches² × strategies.
std::vector<std::vector<Sequence>> deal_anew(std::span<const std::vector<Sequence>> batches,
                                             const PreparedStrategies& prepared);

/// Least seconds of a batch on any strategy, by lower bounds, parameter traffic included; +infinity
/// when none holds it.
double least_seconds(std::span<const Sequence> sequences, const PreparedStrategies& prepared);

}  // namespace hydraulis
