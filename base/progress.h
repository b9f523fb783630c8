#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace hydraulis {

/// A progress bar on standard error, drawn only when that is a terminal and at most ten times a
/// second; silent otherwise. The bar is wiped when the work ends.
class Progress {
 public:
  /// `total` 0 means unknown: the count is shown without a bar.
  Progress(std::string label, std::uint64_t total, std::string unit = "");
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();
  /// Says how much is done so far.
  void update(std::uint64_t done);

 private:
  std::string label_;
  std::string unit_;
  std::uint64_t total_;
  bool on_terminal_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace hydraulis
