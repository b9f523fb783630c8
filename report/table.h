#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"

namespace hydraulis {

enum class Align { left, right };

/// A cell: nothing measured or not applicable (monostate), text, a whole number, or a number.
/// A double that is not finite is shown like a missing one.
using Cell = std::variant<std::monostate, std::string, std::int64_t, double>;

/// One column. `key` is the machine name (JSON and CSV, unit in the name: "mean_ms"); `heading` is
/// what people read, with its unit ("mean ms").
struct Column {
  std::string key;
  std::string heading;
  int decimals = 1;  ///< digits after the point in text; CSV and JSON keep full precision
  Align align = Align::right;
};

/// One result table: the same data prints as aligned text, as CSV and as JSON rows.
struct Table {
  std::string title;  ///< text only; may be empty
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  ///< each as long as `columns`
  std::vector<std::string> notes;       ///< lines below the text table: assumptions, origins
};

/// Aligned text: title, heading, rule, rows (thousands grouped, missing cells "-"), notes.
std::string to_text(const Table& table);
/// RFC 4180 with the column keys as header; missing cells are empty; "\n" line ends.
std::string to_csv(const Table& table);
/// An array with one object a row, keyed by column; missing cells are null.
Json to_json(const Table& table);

/// Terminal columns that a UTF-8 text takes: combining marks none, East Asian wide forms two.
std::size_t display_width(std::string_view utf8);

/// A finite number with `decimals` digits and grouped thousands ("12,345.7"); "-" if not finite.
std::string grouped_number(double value, int decimals);

}  // namespace hydraulis
