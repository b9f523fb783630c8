#pragma once

#include <optional>
#include <string>

#include "costmodel/profile.h"

namespace hydraulis::detail {

/// A profile shipped with the project, or nothing.
std::optional<Profile> profile_preset(const std::string& name);

/// For messages: all names.
std::string profile_preset_names();

}  // namespace hydraulis::detail
