#pragma once

#include <filesystem>
#include <string_view>

namespace hydraulis {

/// Opens a file for appending, making it if need be. Throws InputError.
int open_for_append(const std::filesystem::path& path);
/// Appends the whole text with as few writes as possible. Throws InputError naming the file.
void append_text(int fd, const std::filesystem::path& path, std::string_view text);

}  // namespace hydraulis
