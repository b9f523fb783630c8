#pragma once

#include <cstdint>
#include <span>

namespace hydraulis {

/// A lower bound on the 1F1B makespan of `micro_batches` micro-batches on `stages` equal stages, in
/// units of one stage's total time, whatever the sizes of the micro-batches: the optimum of a
/// linear program (experiments/derive_bubble_table.py) up to 16 stages and 32 micro-batches, beyond
/// that 1/(1−(1−1/p)^v). Equal micro-batches give (v+p−1)/v; ramped ones come close to this bound.
double least_bubble_factor(int stages, std::int64_t micro_batches);

/// An upper limit on the work, in seconds of one stage, that `micro_batches` micro-batches can
/// bring to `stages` equal stages within a 1F1B makespan of `makespan` seconds when among what they
/// hold are pieces that take at least `longest` seconds a stage, longest first (none: nothing
/// known; pieces may share a micro-batch); negative when the first alone takes too long. For
/// weights b, work + b·(sum of the k longest pieces) ≤ a(k,p,v,b)·makespan, a being optima of
/// linear programs: k = 1 for 2, 3, 4, 6 and 8 stages (experiments/derive_long_table.py), k = 2 and
/// 3 up to 4 stages and 16 micro-batches (experiments/derive_several_table.py). For other numbers
/// of stages least_bubble_factor() alone limits the work.
double most_work(int stages, std::int64_t micro_batches, double makespan,
                 std::span<const double> longest);

/// The reverse: a lower bound on the makespan that `work` seconds of one stage take.
double least_makespan(int stages, std::int64_t micro_batches, double work,
                      std::span<const double> longest);

}  // namespace hydraulis
