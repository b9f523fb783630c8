#include "cli/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace hydraulis {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substituted});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row.back();
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options({})) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    for (const auto& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

/// "hydraulis trace" for a nested command.
std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

bool looks_like_option(const std::string& argument) {
  return argument.size() > 1 && argument[0] == '-' && (argument[1] < '0' || argument[1] > '9');
}

/// Whether the argument is an option of the command whose value is the argument behind it.
bool takes_next(const CLI::App& command, const std::string& argument) {
  const CLI::Option* option = command.get_option_no_throw(argument);
  return option != nullptr && option->get_items_expected_max() > 0;
}

/// What to say about the first option that the command does not have, or "".
std::string unknown_option(const CLI::App& command, const std::vector<std::string>& arguments) {
  const std::vector<std::string> known = option_names(command);
  for (const auto& argument : arguments) {
    if (argument == "--") break;
    const std::string name = argument.substr(0, argument.find('='));
    if (!looks_like_option(name)) continue;
    const bool is_known = std::find(known.begin(), known.end(), name) != known.end() ||
                          (name[1] != '-' && command.get_option_no_throw(name.substr(0, 2)));
    if (!is_known) {
      return fmt::format("{}: unknown option {}{}", full_name(command), name,
                         did_you_mean(name, known));
    }
  }
  return "";
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string usage_message(const CLI::App& app, const std::vector<std::string>& arguments,
                          const CLI::ParseError& error) {
  const CLI::App* command = &app;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::vector<std::string> names = subcommand_names(*command);
    if (names.empty()) break;
    if (looks_like_option(argument)) {
      if (takes_next(*command, argument)) ++i;
      continue;
    }
    if (std::find(names.begin(), names.end(), argument) == names.end()) {
      const std::string near = did_you_mean(argument, names);
      return fmt::format(
          "{}: unknown subcommand '{}'{}", full_name(*command), argument,
          near.empty() ? fmt::format("; known are: {}", fmt::join(names, ", ")) : near);
    }
    command = command->get_subcommand(argument);
  }
  // A mistyped name of a required option shows as that option missing.
  const std::string unknown = unknown_option(*command, arguments);
  if (!unknown.empty()) return unknown;
  const std::vector<std::string> names = subcommand_names(*command);
  if (!names.empty() && command->get_require_subcommand_min() > 0) {
    return fmt::format("{}: a subcommand is expected: {} (see {} --help)", full_name(*command),
                       fmt::join(names, ", "), full_name(*command));
  }
  return fmt::format("{}: {}", full_name(*command), error.what());
}

}  // namespace hydraulis
