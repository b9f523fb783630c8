#include "report/report.h"

namespace hydraulis {

std::string to_text(const Report& report) {
  std::string text;
  for (const auto& table : report.tables) {
    if (table.csv_only) continue;
    if (!text.empty()) text += '\n';
    text += to_text(table);
  }
  return text;
}

}  // namespace hydraulis
