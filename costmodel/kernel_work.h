#pragma once

#include <cstdint>

#include "costmodel/operator_profile.h"

namespace hydraulis {

/// Work of one call of a kernel.
struct KernelWork {
  double flops = 0;        ///< of products and attention; 0 for the others
  std::int64_t bytes = 0;  ///< of its arguments, each read or written once
};

/// `tokens` rows; attention: in causal sequences of `length`; `element_bytes` of the matrices.
/// Attention is counted as two products forward and five backward over half of each sequence's
/// square.
KernelWork kernel_work(const KernelShape& shape, std::int64_t tokens, std::int64_t length,
                       std::int64_t element_bytes);

}  // namespace hydraulis
