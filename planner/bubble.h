#pragma once

#include <cstdint>

namespace hydraulis {

/// A lower bound on the 1F1B makespan of `micro_batches` micro-batches on `stages` equal stages, in
/// units of one stage's total time, whatever the sizes of the micro-batches: the optimum of a
/// linear program (experiments/derive_bubble_table.py) up to 16 stages and 32 micro-batches, beyond
/// that 1/(1−(1−1/p)^v). Equal micro-batches give (v+p−1)/v; ramped ones come close to this bound.
double least_bubble_factor(int stages, std::int64_t micro_batches);

}  // namespace hydraulis
