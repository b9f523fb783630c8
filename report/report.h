#pragma once

#include <vector>

#include "report/table.h"

namespace hydraulis {

/// What a command has to say: the JSON document with the keys that scripts rely on, and the tables
/// that people read. As CSV it is the first table alone.
struct Report {
  Json json;
  std::vector<Table> tables;
};

/// The tables for people (not csv_only) as text, a blank line between them.
std::string to_text(const Report& report);

}  // namespace hydraulis
