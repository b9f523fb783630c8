#include "report/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace hydraulis {
namespace {

constexpr std::string_view kMissing = "-";
constexpr std::string_view kGap = "  ";

struct CodePoint {
  char32_t value;
  std::size_t bytes;
};

/// First code point of a non-empty text; a malformed byte counts as one narrow character.
CodePoint first_code_point(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t bytes = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (bytes == 1 || text.size() < bytes) return {lead, 1};
  char32_t value = lead & (0xFFu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0u) != 0x80u) return {lead, 1};
    value = value << 6 | (next & 0x3Fu);
  }
  return {value, bytes};
}

bool is_zero_width(char32_t c) {
  return (c >= 0x0300 && c <= 0x036F) || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x20D0 && c <= 0x20FF) || (c >= 0xFE00 && c <= 0xFE0F);
}

bool is_wide(char32_t c) {
  return (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
         (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0xFE30 && c <= 0xFE6F) || (c >= 0xFF00 && c <= 0xFF60) ||
         (c >= 0xFFE0 && c <= 0xFFE6) || (c >= 0x1F300 && c <= 0x1FAFF) ||
         (c >= 0x20000 && c <= 0x3FFFD);
}

std::string group_thousands(std::string digits) {
  const std::size_t begin = digits.find_first_of("0123456789");
  const std::size_t end = std::min(digits.find('.'), digits.size());
  for (std::size_t at = end; at > begin + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

/// Control characters would break the alignment (or the terminal).
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return text;
}

std::string text_of(const Cell& cell, int decimals) {
  if (const auto* text = std::get_if<std::string>(&cell)) return printable(*text);
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) {
    return group_thousands(fmt::format("{}", *whole));
  }
  if (const auto* number = std::get_if<double>(&cell)) return grouped_number(*number, decimals);
  return std::string(kMissing);
}

std::string csv_of(const Cell& cell) {
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *whole);
  if (const auto* number = std::get_if<double>(&cell)) {
    return std::isfinite(*number) ? fmt::format("{}", *number) : "";
  }
  const auto* text = std::get_if<std::string>(&cell);
  if (text == nullptr) return "";
  if (text->find_first_of(",\"\r\n") == std::string::npos) return *text;
  std::string quoted = "\"";
  for (const char c : *text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

Json json_of(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) return *whole;
  const auto* number = std::get_if<double>(&cell);
  if (number != nullptr && std::isfinite(*number)) return *number;
  return nullptr;
}

void check_shape(const Table& table) {
  for (const auto& row : table.rows) {
    if (row.size() != table.columns.size()) {
      throw std::logic_error(fmt::format("table '{}': a row of {} cells in {} columns", table.title,
                                         row.size(), table.columns.size()));
    }
  }
}

std::string padded(const std::string& text, std::size_t width, Align align) {
  const std::size_t used = display_width(text);
  const std::string fill(width > used ? width - used : 0, ' ');
  return align == Align::left ? text + fill : fill + text;
}

/// Joins cells that are already padded; blanks at the line's end are dropped.
std::string line_of(const std::vector<std::string>& cells) {
  std::string line = fmt::format("{}", fmt::join(cells, kGap));
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

}  // namespace

std::size_t display_width(std::string_view utf8) {
  std::size_t width = 0;
  while (!utf8.empty()) {
    const CodePoint c = first_code_point(utf8);
    width += is_zero_width(c.value) ? 0 : is_wide(c.value) ? 2 : 1;
    utf8.remove_prefix(c.bytes);
  }
  return width;
}

std::string grouped_number(double value, int decimals) {
  if (!std::isfinite(value)) return std::string(kMissing);
  std::string digits = fmt::format("{:.{}f}", value, decimals);
  // A tiny negative rounds to "-0.0"; people read that as a mistake.
  if (digits.front() == '-' && digits.find_first_of("123456789") == std::string::npos) {
    digits.erase(0, 1);
  }
  return group_thousands(std::move(digits));
}

std::string to_text(const Table& table) {
  check_shape(table);
  std::vector<std::vector<std::string>> lines(table.rows.size() + 1);
  std::vector<std::string> rule;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const Column& column = table.columns[c];
    std::vector<std::string> texts{printable(column.heading)};
    for (const auto& row : table.rows) texts.push_back(text_of(row[c], column.decimals));
    std::size_t width = 0;
    for (const auto& text : texts) width = std::max(width, display_width(text));
    for (std::size_t r = 0; r < texts.size(); ++r) {
      lines[r].push_back(padded(texts[r], width, column.align));
    }
    rule.emplace_back(width, '-');
  }
  std::string result;
  if (!table.title.empty()) result += table.title + '\n';
  if (!table.columns.empty()) {
    result += line_of(lines.front()) + line_of(rule);
    for (std::size_t r = 1; r < lines.size(); ++r) result += line_of(lines[r]);
  }
  for (const auto& note : table.notes) result += note + '\n';
  return result;
}

std::string to_csv(const Table& table) {
  check_shape(table);
  std::vector<std::string> cells;
  for (const auto& column : table.columns) cells.push_back(csv_of(column.key));
  std::string result = fmt::format("{}\n", fmt::join(cells, ","));
  for (const auto& row : table.rows) {
    cells.clear();
    for (const auto& cell : row) cells.push_back(csv_of(cell));
    result += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return result;
}

Json to_json(const Table& table) {
  check_shape(table);
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json object = Json::object();
    for (std::size_t c = 0; c < row.size(); ++c) object[table.columns[c].key] = json_of(row[c]);
    rows.push_back(std::move(object));
  }
  return rows;
}

}  // namespace hydraulis
