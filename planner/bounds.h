#pragma once

#include <span>

#include "planner/packing.h"

namespace hydraulis {

/// A proved lower bound in seconds on the makespan of any sequence assignment on the given
/// pipelines under any schedule without transfer time; +infinity when some sequence fits no
/// pipeline.
///
/// The proof, for a makespan T: a pipeline with v micro-batches (a whole number) can do work
/// W ≤ T·(1−(1−1/p)^v) − v·c and W ≤ T − (p−1)·c − v·c on p stages and take L ≤ v·max_tokens
/// tokens, and L ≤ W/r where r is the least time per token of any sequence. For multipliers α, β ≥
/// 0 no pipeline of a scheme exceeds h = max over v of α·W + β·L, while the batch needs at least
/// Σ_s min over eligible schemes of α·time(s) + β·tokens(s). Any T for which the need exceeds the
/// supply is therefore impossible, whatever the multipliers; a bounded search picks good ones.
/// The p-stage term: micro-batches of at least θ seconds give T ≥ (their sum) + (p−1)·θ, and sizes
/// that satisfy this for every θ sum to at most T·(1−(1−1/p)^v).
double makespan_lower_bound(std::span<const PipelineCost> pipelines,
                            std::span<const Sequence> sequences);

}  // namespace hydraulis
