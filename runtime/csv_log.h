#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace hydraulis {

/// A run's log: a header, then one row a step, the step first. Rows are written whole; a run that
/// resumes at step n removes the rows after it (steps that will be done again, and a row cut off by
/// a crash), so that every step stands there once.
class CsvLog {
 public:
  /// `columns` without the step. Continues the file after `resumed_step` if it exists (0 begins it
  /// anew). Throws InputError: the file has other columns or cannot be written.
  CsvLog(std::filesystem::path path, const std::vector<std::string>& columns,
         std::int64_t resumed_step);
  CsvLog(const CsvLog&) = delete;
  CsvLog& operator=(const CsvLog&) = delete;
  ~CsvLog();

  /// As many values as columns. Text with commas, quotes or line ends is quoted.
  void write(std::int64_t step, const std::vector<std::string>& values);

 private:
  std::filesystem::path path_;
  std::size_t columns_;
  int fd_ = -1;
};

}  // namespace hydraulis
