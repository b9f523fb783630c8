#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace hydraulis {

/// Exit codes of the `hydraulis` command.
enum class ExitCode { done = 0, internal = 1, bad_input = 2, infeasible = 3 };

/// An error meant for a person: one line that names the file or option, the field and what was
/// expected. The command prints it and exits with `code()`.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// Bad usage or bad input (exit code 2).
class InputError : public Error {
 public:
  explicit InputError(const std::string& message) : Error(ExitCode::bad_input, message) {}
  template <typename... Args>
  explicit InputError(fmt::format_string<Args...> format, Args&&... args)
      : InputError(fmt::format(format, std::forward<Args>(args)...)) {}
};

/// The request is well formed but cannot be met (exit code 3): the message says which limit is
/// missed, by how much, and what would fit.
class InfeasibleError : public Error {
 public:
  explicit InfeasibleError(const std::string& message) : Error(ExitCode::infeasible, message) {}
  template <typename... Args>
  explicit InfeasibleError(fmt::format_string<Args...> format, Args&&... args)
      : InfeasibleError(fmt::format(format, std::forward<Args>(args)...)) {}
};

}  // namespace hydraulis
