#pragma once

#include <filesystem>
#include <string>

#include "base/hdf5.h"
#include "costmodel/profile.h"

namespace hydraulis::detail {

/// Kinds of profiles; a file that names none is of stages.
inline constexpr const char* kStageKind = "stages";
inline constexpr const char* kOperatorKind = "operators";
/// Writes format, version and kind.
void write_profile_head(Hdf5File& file, const std::string& kind);
/// Checks format and version; the kind. Throws InputError.
std::string read_profile_head(const Hdf5File& file, const std::string& where);
/// The same of a file.
std::string profile_file_kind(const std::filesystem::path& path);

/// An integer attribute from 0 to the greatest int. Throws InputError.
int small_attribute(const Hdf5File& file, const std::string& where, const std::string& object,
                    const char* name);

/// The HDF5 form of a profile, sizes and types checked, values not (see check_profile).
Profile read_profile_file(const std::filesystem::path& path);
void write_profile_file(const Profile& profile, const std::filesystem::path& path);

}  // namespace hydraulis::detail
