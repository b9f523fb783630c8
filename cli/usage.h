#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hydraulis {

/// One line that says what is wrong with a command line that CLI11 refused: the subcommand or
/// option at fault, the nearest that exists, or what was expected. `arguments` excludes the
/// program's own name.
std::string usage_message(const CLI::App& app, const std::vector<std::string>& arguments,
                          const CLI::ParseError& error);

/// The candidate closest to a mistyped word, or "" when none is near. Counts insertions,
/// deletions, substitutions and swapped neighbours.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace hydraulis
