#include "report/report.h"

namespace hydraulis {
namespace {

constexpr std::size_t kBlockBytes = 1 << 16;

/// Hands text on in blocks.
class Blocks {
 public:
  explicit Blocks(const TextSink& sink) : sink_(sink) {}
  void add(std::string_view text) {
    text_ += text;
    if (text_.size() >= kBlockBytes) finish();
  }
  void finish() {
    sink_(text_);
    text_.clear();
  }

 private:
  const TextSink& sink_;
  std::string text_;
};

Table one_row(const LongTable& table, std::size_t index) {
  return {"", table.columns, {table.row(index)}, {}};
}

/// JSON text as an element of a list inside the document's object: two levels deeper.
std::string indented(const Json& json) {
  constexpr std::string_view kIndent = "    ";
  std::string result(kIndent);
  for (const char c : json.dump(2)) {
    result += c;
    if (c == '\n') result += kIndent;
  }
  return result;
}

}  // namespace

std::string to_text(const Report& report) {
  std::string text;
  for (const auto& table : report.tables) {
    if (!text.empty()) text += '\n';
    text += to_text(table);
  }
  return text;
}

void write_json(const Report& report, const TextSink& sink) {
  const std::string rest = to_text(report.json);
  if (!report.long_table) return sink(rest);
  Blocks blocks(sink);
  const LongTable& table = *report.long_table;
  blocks.add("{\n  " + Json(table.key).dump() + ": [");
  for (std::size_t i = 0; i < table.rows; ++i) {
    blocks.add((i == 0 ? "\n" : ",\n") + indented(to_json(one_row(table, i)).front()));
  }
  blocks.add(table.rows == 0 ? "]" : "\n  ]");
  // What follows is the document without its opening brace.
  blocks.add(report.json.empty() ? "\n}\n" : "," + rest.substr(1));
  blocks.finish();
}

void write_csv(const Report& report, const TextSink& sink) {
  if (!report.long_table) {
    if (!report.tables.empty()) sink(to_csv(report.tables.front()));
    return;
  }
  Blocks blocks(sink);
  const LongTable& table = *report.long_table;
  const std::string heading = to_csv(Table{"", table.columns, {}, {}});
  blocks.add(heading);
  for (std::size_t i = 0; i < table.rows; ++i) {
    blocks.add(std::string_view(to_csv(one_row(table, i))).substr(heading.size()));
  }
  blocks.finish();
}

}  // namespace hydraulis
