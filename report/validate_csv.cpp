#include "report/validate_csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/input_file.h"

namespace hydraulis {
namespace {

constexpr std::uint64_t kMostBytes = 64u << 20;

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r") - first + 1));
}

std::vector<std::string> split(std::string_view line) {
  std::vector<std::string> fields;
  while (true) {
    const auto comma = line.find(',');
    fields.push_back(trimmed(line.substr(0, comma)));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

template <typename T>
bool parsed(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
}

}  // namespace

CsvFile::CsvFile(const std::string& path, bool may_repeat) : path_(path) {
  const InputFile file(path);
  if (file.size() > kMostBytes) {
    throw InputError("{}: {} bytes, expected at most {}", path, file.size(), kMostBytes);
  }
  std::string content(file.size(), '\0');
  file.read_at(0, content.data(), content.size());
  std::string_view text = content;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  for (int number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (trimmed(line).empty()) continue;
    std::vector<std::string> fields = split(line);
    if (columns_.empty()) {
      columns_ = std::move(fields);
      for (std::size_t i = 0; i < columns_.size() && !may_repeat; ++i) {
        if (std::find(columns_.begin(), columns_.begin() + static_cast<std::ptrdiff_t>(i),
                      columns_[i]) != columns_.begin() + static_cast<std::ptrdiff_t>(i)) {
          throw InputError("{}: line {}: column '{}' stands there twice", path, number,
                           columns_[i]);
        }
      }
      continue;
    }
    if (fields.size() != columns_.size()) {
      throw InputError("{}: line {}: {} fields, expected {} as the heading has", path, number,
                       fields.size(), columns_.size());
    }
    fields_.push_back(std::move(fields));
    lines_.push_back(number);
  }
  if (fields_.empty()) throw InputError("{}: no rows, expected a heading and at least one", path);
}

std::size_t CsvFile::index(std::string_view column) const {
  const auto found = std::find(columns_.begin(), columns_.end(), column);
  if (found == columns_.end()) {
    throw InputError("{}: line 1: no column '{}'; there are {}", path_, column,
                     fmt::join(columns_, ", "));
  }
  return static_cast<std::size_t>(found - columns_.begin());
}

bool CsvFile::has(std::string_view column) const {
  return std::find(columns_.begin(), columns_.end(), column) != columns_.end();
}

std::string CsvFile::one_of(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (has(name)) return name;
  }
  throw InputError("{}: line 1: no column {}; there are {}", path_, fmt::join(names, " or "),
                   fmt::join(columns_, ", "));
}

const std::string& CsvFile::text(std::size_t row, std::string_view column) const {
  return fields_[row][index(column)];
}

void CsvFile::refuse(std::size_t row, std::string_view column, const std::string& expected) const {
  throw InputError("{}: line {}, column '{}': '{}', expected {}", path_, lines_[row], column,
                   text(row, column), expected);
}

double CsvFile::positive(std::size_t row, std::string_view column) const {
  double value = 0;
  if (!parsed(text(row, column), value) || !std::isfinite(value) || value <= 0) {
    refuse(row, column, "a number above 0");
  }
  return value;
}

int CsvFile::integer(std::size_t row, std::string_view column, int low, int high) const {
  int value = 0;
  if (!parsed(text(row, column), value) || value < low || value > high) {
    refuse(row, column, fmt::format("a whole number from {} to {}", low, high));
  }
  return value;
}

}  // namespace hydraulis
