#pragma once

#include <optional>
#include <string>

#include "costmodel/model_spec.h"

namespace hydraulis::detail {

/// The model of a preset name, or nothing.
std::optional<ModelSpec> model_preset(const std::string& name);

/// For messages: all names.
std::string model_preset_names();

}  // namespace hydraulis::detail
