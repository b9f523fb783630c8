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
///
/// With `whole_numbers`, a finite `enough` and pipelines of several stages, times in between are
/// refuted by cases of which pipeline each of the eight longest sequences goes to. A pipeline of p
/// equal stages that holds the pieces t₁ ≥ t₂ ≥ t₃ can only do W ≤ most_work(p, v, T, t) − v·c: for
/// sizes x of micro-batches in any order, Σx + b·(sum of k of them) ≤ a(k,p,v,b)·T for every b ≥ 0,
/// a being the largest value of a linear program over the schedule's own precedences, and pieces
/// that share a micro-batch make one of at least their sum. A case falls when multipliers exist
/// under which its sequences, each worth its own scheme's price, exceed the supply, or when a
/// pipeline cannot do what it was given; T falls when every case falls.
double makespan_lower_bound(std::span<const PipelineCost> pipelines,
                            std::span<const Sequence> sequences, BoundEffort effort,
                            double enough = std::numeric_limits<double>::infinity());

}  // namespace hydraulis
