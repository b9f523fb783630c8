#pragma once

#include <memory>
#include <string>

namespace hydraulis {

/// Writes to a file descriptor from a thread of its own, so that a reader who is slow or has
/// stopped listening (a held terminal, a launcher that is ending) never holds up who prints.
class LinePrinter {
 public:
  explicit LinePrinter(int descriptor);
  LinePrinter(const LinePrinter&) = delete;
  LinePrinter& operator=(const LinePrinter&) = delete;
  /// Leaves what is not written yet.
  ~LinePrinter();

  void print(std::string text);
  /// Waits until all is written, at most so long. Returns what went wrong, empty if nothing; that a
  /// reader left is nothing.
  std::string finish(double most_seconds);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hydraulis
