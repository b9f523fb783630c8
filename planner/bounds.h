#pragma once

#include <limits>
#include <span>

#include "planner/packing.h"

namespace hydraulis {

/// `quick` answers in microseconds and prunes; `whole_numbers` adds the case distinction.
enum class BoundEffort { quick, whole_numbers };

/// A proved lower bound in seconds on the makespan of any sequence assignment on the given
/// pipelines under 1F1B without transfer time; +infinity when some sequence fits no pipeline. The
/// search for a better bound stops once it reaches `enough` seconds.
///
/// The proof, for a makespan T: a pipeline with v micro-batches (a whole number) can do work
/// W ≤ T/φ(p,v) − v·c on p stages, φ being least_bubble_factor(), and take L ≤ v·max_tokens tokens,
/// and L ≤ W/r where r is the least time per token of any sequence. For multipliers α, β ≥ 0 no
/// pipeline of a scheme exceeds h = max over v of α·W + β·L, while the batch needs at least
/// Σ_s min over eligible schemes of α·time(s) + β·tokens(s). Any T for which the need exceeds the
/// supply is therefore impossible, whatever the multipliers; a bounded search picks good ones. A
/// case distinction over how many pipelines have few or many micro-batches keeps their numbers
/// whole.
double makespan_lower_bound(std::span<const PipelineCost> pipelines,
                            std::span<const Sequence> sequences, BoundEffort effort,
                            double enough = std::numeric_limits<double>::infinity());

}  // namespace hydraulis
