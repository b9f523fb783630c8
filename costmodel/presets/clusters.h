#pragma once

#include <optional>
#include <string>

#include "costmodel/cluster_spec.h"

namespace hydraulis::detail {

/// The cluster of a preset name ("a800-64"), or nothing when the name has not that form. Throws
/// InputError when the device is known but the number of devices is not possible.
std::optional<ClusterSpec> cluster_preset(const std::string& name);

/// For messages: "a800-N, a100-N, …".
std::string cluster_preset_names();

}  // namespace hydraulis::detail
