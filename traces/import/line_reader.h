#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/progress.h"
#include "traces/import/byte_source.h"

namespace hydraulis {

/// Reads a text file (perhaps compressed) line by line in memory bounded by the longest line
/// allowed. A byte order mark at the beginning, carriage returns at line ends and a missing last
/// newline are accepted. A line over the limit is an InputError.
class LineReader {
 public:
  LineReader(const std::filesystem::path& path, std::size_t longest_line_bytes);
  /// The next line without its end, valid until the next call; false at the end of the file.
  bool next(std::string_view& line);
  /// Number of the line last returned, from 1.
  std::uint64_t number() const { return number_; }

 private:
  std::string name_;
  std::size_t longest_;
  std::unique_ptr<ByteSource> source_;
  Progress progress_;
  std::string buffer_;
  std::size_t begin_ = 0;
  bool at_end_ = false;
  std::uint64_t number_ = 0;
};

/// Without spaces and tabs at both ends.
std::string_view trimmed(std::string_view text);

}  // namespace hydraulis
