#pragma once

#include <string>

#include "costmodel/operator_profile.h"

namespace hydraulis {

/// "gemm_forward 512→1536", with the number format behind it where it is not f32.
std::string kernel_name(const KernelShape& shape, const std::string& data_type);
/// "all_reduce, 8 ranks on 2 nodes".
std::string group_name(Collective operation, int ranks, int nodes);

}  // namespace hydraulis
