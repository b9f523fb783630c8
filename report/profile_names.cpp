#include "report/profile_names.h"

#include <fmt/format.h>

namespace hydraulis {

std::string kernel_name(const KernelShape& shape, const std::string& data_type) {
  return to_string(shape) + (data_type == "f32" ? "" : " (" + data_type + ")");
}

std::string group_name(Collective operation, int ranks, int nodes) {
  return fmt::format("{}, {} ranks on {} node{}", to_string(operation), ranks, nodes,
                     nodes == 1 ? "" : "s");
}

}  // namespace hydraulis
