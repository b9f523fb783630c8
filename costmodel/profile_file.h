#pragma once

#include <filesystem>

#include "costmodel/profile.h"

namespace hydraulis::detail {

/// The HDF5 form of a profile, sizes and types checked, values not (see check_profile).
Profile read_profile_file(const std::filesystem::path& path);
void write_profile_file(const Profile& profile, const std::filesystem::path& path);

}  // namespace hydraulis::detail
