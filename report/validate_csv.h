#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hydraulis {

/// A comma-separated file with a heading line; no quotes, fields trimmed of spaces. Values are read
/// with errors that name the file, the line and the column.
class CsvFile {
 public:
  /// Throws InputError when the file cannot be read, is empty, has a column twice, or a line has
  /// another number of fields than the heading. Where columns may repeat (nccl-tests writes times
  /// out of place and in place) the first counts.
  explicit CsvFile(const std::string& path, bool may_repeat = false);

  const std::string& path() const { return path_; }
  const std::vector<std::string>& columns() const { return columns_; }
  std::size_t rows() const { return fields_.size(); }
  int line(std::size_t row) const { return lines_[row]; }
  bool has(std::string_view column) const;
  /// The first of the names that is a column; throws InputError when none is.
  std::string one_of(const std::vector<std::string>& names) const;

  const std::string& text(std::size_t row, std::string_view column) const;
  /// Finite and > 0.
  double positive(std::size_t row, std::string_view column) const;
  int integer(std::size_t row, std::string_view column, int low, int high) const;
  /// Throws InputError: "file: line N, column 'c': 'value', expected ...".
  [[noreturn]] void refuse(std::size_t row, std::string_view column,
                           const std::string& expected) const;

 private:
  std::size_t index(std::string_view column) const;

  std::string path_;
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> fields_;
  std::vector<int> lines_;
};

}  // namespace hydraulis
