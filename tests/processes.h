#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace hydraulis {

/// Running processes whose command line has `text`. One that ends while it is looked at counts as
/// gone.
inline int processes_with(const std::string& text) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    std::ostringstream line;
    line << file.rdbuf();  // unlike the buffer itself, this throws nothing when the process goes
    if (line.str().find(text) != std::string::npos) ++found;
  }
  return found;
}

}  // namespace hydraulis
