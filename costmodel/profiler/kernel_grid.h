#pragma once

#include <cstdint>
#include <vector>

#include "costmodel/model_spec.h"
#include "costmodel/profiler/kernel_case.h"

namespace hydraulis {

/// What the kernels are measured for.
struct KernelGridSettings {
  std::vector<ModelSpec> models;
  std::vector<int> tensor_parallel;  ///< degrees; those that cannot divide a model are left out
  std::int64_t max_tokens = 4096;    ///< of a micro-batch
  int ranks = 1;                     ///< that share the optimizer's work
};

/// Every point, the coarse ones first: what is measured when time runs out is spread over all
/// sizes.
std::vector<KernelPoint> kernel_grid(const KernelGridSettings& settings);

}  // namespace hydraulis
