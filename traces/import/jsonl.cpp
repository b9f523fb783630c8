#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "traces/import/importer.h"
#include "traces/import/line_reader.h"
#include "traces/import/number.h"
#include "traces/tokenizer/tokenizer.h"

namespace hydraulis {
namespace {

/// A document of this many bytes fits; more is a file that is not one object a line.
constexpr std::size_t kLongestLine = 256u << 20;

/// Keeps one text field of the object on a line and nothing else, however large the rest is.
class FieldFinder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit FieldFinder(const std::string& field) : field_(field) {}

  void reset() {
    depth_ = 0;
    wanted_ = false;
    found_.clear();
    error_.clear();
    text_.clear();
  }
  /// Type of the field's value; empty when the object has no such field.
  const std::string& found() const { return found_; }
  const std::string& text() const { return text_; }
  const std::string& error() const { return error_; }
  bool is_object() const { return object_; }

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(number_integer_t) override { return value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return value("a number"); }
  bool binary(binary_t&) override { return value("binary"); }
  bool string(string_t& text) override {
    if (wanted_ && depth_ == 1) text_.swap(text);
    return value("a string");
  }
  bool start_object(std::size_t) override { return open("an object", true); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open("an array", false); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    wanted_ = depth_ == 1 && name == field_;
    if (wanted_ && !found_.empty()) {
      error_ = fmt::format("field '{}' is given twice", field_);
      return false;
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    // The library's own text says why after its last colon-separated position.
    error_ = fmt::format("not valid JSON at byte {}", position);
    const std::string what = e.what();
    if (const auto at = what.find("; last read"); at != std::string::npos) {
      error_ +=
          ": " + excerpt(what.substr(what.rfind(": ", at) + 2, at - what.rfind(": ", at) - 2));
    }
    return false;
  }

 private:
  bool value(const char* type) {
    if (depth_ == 0) object_ = false;
    if (depth_ == 1 && wanted_) {
      found_ = type;
      wanted_ = false;
    }
    return true;
  }
  bool open(const char* type, bool object) {
    if (depth_ == 0) {
      object_ = object;
    } else {
      value(type);
    }
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  const std::string& field_;
  std::size_t depth_ = 0;
  bool object_ = false;
  bool wanted_ = false;
  std::string found_;
  std::string text_;
  std::string error_;
};

/// Why the line cannot be used; empty if it can.
std::string fault(const FieldFinder& finder, const std::string& field) {
  if (!finder.error().empty()) return finder.error();
  if (!finder.is_object()) return "not a JSON object";
  if (finder.found().empty()) return fmt::format("field '{}' is missing", field);
  if (finder.found() != "a string") {
    return fmt::format("field '{}' is {}, expected a string", field, finder.found());
  }
  return "";
}

}  // namespace

void import_jsonl(const ImportOptions& options, LengthCollector& collector, ImportReport& report) {
  const auto tokenizer =
      make_tokenizer(options.tokenizer.empty() ? std::string("bytes") : options.tokenizer);
  report.tokenizer = tokenizer->name();
  LineReader reader(options.input, kLongestLine);
  FieldFinder finder(options.text_field);
  std::string_view line;
  while (reader.next(line)) {
    if (trimmed(line).empty()) continue;
    finder.reset();
    nlohmann::json::sax_parse(line.begin(), line.end(), &finder);
    if (const std::string reason = fault(finder, options.text_field); !reason.empty()) {
      if (options.skip_bad_lines) {
        ++report.bad_lines;
        continue;
      }
      throw InputError("{}: line {}: {}", options.input.string(), reader.number(), reason);
    }
    collector.add(tokenizer->count(finder.text()),
                  [&] { return fmt::format("line {}", reader.number()); });
  }
  report.notes.push_back(fmt::format("text field '{}'", options.text_field));
  report.notes.push_back("no end-of-text token added");
}

}  // namespace hydraulis
