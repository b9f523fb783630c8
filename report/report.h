#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/table.h"

namespace hydraulis {

/// A table too long to be held as cells, one row an iteration or so: its rows are made as they are
/// written. People do not see it.
struct LongTable {
  std::string key;  ///< of the JSON document
  std::vector<Column> columns;
  std::size_t rows = 0;
  std::function<std::vector<Cell>(std::size_t)> row;
};

/// What a command has to say: the JSON document with the keys that scripts rely on, and the tables
/// that people read. As CSV it is the long table alone, or else the first table.
struct Report {
  Json json;  ///< an object
  std::vector<Table> tables;
  std::optional<LongTable> long_table = {};  ///< first key of the JSON document
};

/// Takes a document piece by piece.
using TextSink = std::function<void(std::string_view)>;

/// The tables for people as text, a blank line between them.
std::string to_text(const Report& report);
/// The JSON document, indented.
void write_json(const Report& report, const TextSink& sink);
/// RFC 4180, as to_csv(Table).
void write_csv(const Report& report, const TextSink& sink);

}  // namespace hydraulis
