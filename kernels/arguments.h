#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "kernels/compute.h"
#include "kernels/matrix.h"

// What every backend asks of the arguments of its kernels. What is wrong throws std::logic_error.
namespace hydraulis::arguments {

void require(bool right, const char* what);
void require_shape(const ConstMatrix& m, std::int64_t rows, std::int64_t columns, const char* what);
void require_types(DataType type, std::initializer_list<ConstMatrix> others);
/// Heads that divide, segments within their matrices, no query in two of them.
void require_attention(const AttentionShape& shape, std::span<const AttentionSegment> segments,
                       const ConstMatrix& q, const ConstMatrix& k, const ConstMatrix& v);
void require_logits(const ConstMatrix& logits, std::int64_t vocabulary);
void require_step(const OptimizerStep& settings);
/// Matrices of one row and one length, stretches within them, in order, that do not overlap.
void require_stretches(std::span<const OptimizerStretch> stretches, const ConstMatrix& parameter,
                       std::initializer_list<ConstMatrix> others);

}  // namespace hydraulis::arguments
