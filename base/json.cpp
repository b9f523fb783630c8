#include "base/json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_set>

#include "base/atomic_file.h"
#include "base/error.h"

namespace hydraulis {
namespace {

constexpr std::size_t kMostLevels = 1000;

/// Follows a document while it is parsed and refuses a field that its object already has (which of
/// the two was meant, nobody can tell), and nesting that only a hostile file has.
class DocumentCheck {
 public:
  explicit DocumentCheck(const std::string& file) : file_(file) {}

  bool operator()(int, Json::parse_event_t event, const Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        count_element();
        if (levels_.size() == kMostLevels) {
          throw InputError("{}: nested more than {} levels deep", file_, kMostLevels);
        }
        levels_.push_back({event == Json::parse_event_t::object_start, {}, {}, 0});
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        levels_.pop_back();
        break;
      case Json::parse_event_t::key: {
        Level& level = levels_.back();
        level.field = parsed.get<std::string>();
        if (!level.fields.insert(level.field).second) {
          throw InputError("{}: field '{}' is given twice", file_, path());
        }
        break;
      }
      case Json::parse_event_t::value:
        count_element();
        break;
    }
    return true;
  }

 private:
  struct Level {
    bool object;
    std::unordered_set<std::string> fields;  ///< of an object, so far
    std::string field;                       ///< of an object: the one being read
    std::size_t elements;                    ///< of an array, so far
  };

  void count_element() {
    if (!levels_.empty() && !levels_.back().object) ++levels_.back().elements;
  }
  std::string path() const {
    std::string text;
    for (const Level& level : levels_) {
      if (level.object) {
        text += (text.empty() ? "" : ".") + level.field;
      } else {
        text += fmt::format("[{}]", level.elements - 1);
      }
    }
    return text;
  }

  const std::string& file_;
  std::vector<Level> levels_;
};

}  // namespace

Json read_json_file(const std::filesystem::path& path) {
  const std::string text = read_text_file(path);
  const std::string file = path.string();
  try {
    // The parser copies its callback, so this one is held by reference.
    DocumentCheck check(file);
    return Json::parse(text, std::ref(check));
  } catch (const Json::exception& e) {  // a syntax error, or a number out of range
    std::string what = e.what();
    // Drop the library's own prefix; the position and the reason are what helps.
    if (const auto at = what.find("parse error"); at != std::string::npos) what = what.substr(at);
    throw InputError("{}: not valid JSON: {}", file, what);
  }
}

JsonFields::JsonFields(const Json& object, std::string where, std::string path)
    : object_(object), where_(std::move(where)), path_(std::move(path)) {
  if (!object_.is_object()) {
    throw InputError("{}: {} is {}, expected an object", where_,
                     path_.empty() ? std::string("the document") : "field '" + path_ + "'",
                     object_.type_name());
  }
}

std::string JsonFields::name(const std::string& field) const {
  return fmt::format("{}: field '{}{}{}'", where_, path_, path_.empty() ? "" : ".", field);
}

bool JsonFields::has(const std::string& field) {
  ignore(field);
  return object_.contains(field);
}

const Json& JsonFields::at(const std::string& field) {
  if (!has(field)) throw InputError("{} is missing", name(field));
  return object_.at(field);
}

std::string JsonFields::text(const std::string& field) {
  const Json& value = at(field);
  if (!value.is_string()) {
    throw InputError("{} is {}, expected a string", name(field), value.type_name());
  }
  return value.get<std::string>();
}

std::string JsonFields::text_or(const std::string& field, const std::string& fallback) {
  return has(field) ? text(field) : fallback;
}

double JsonFields::number(const std::string& field) {
  const Json& value = at(field);
  if (!value.is_number()) {
    throw InputError("{} is {}, expected a number", name(field), value.type_name());
  }
  const double result = value.get<double>();
  if (!std::isfinite(result)) throw InputError("{} is not finite", name(field));
  return result;
}

double JsonFields::number_or(const std::string& field, double fallback) {
  return has(field) ? number(field) : fallback;
}

double JsonFields::positive(const std::string& field) {
  const double result = number(field);
  if (result <= 0) throw InputError("{} is {}, expected more than 0", name(field), result);
  return result;
}

std::int64_t JsonFields::integer(const std::string& field, std::int64_t low, std::int64_t high) {
  const Json& value = at(field);
  if (!value.is_number_integer()) {
    throw InputError("{} is {}, expected an integer", name(field), value.dump());
  }
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
    throw InputError("{} is {}, expected {} to {}", name(field), value.dump(), low, high);
  }
  const auto result = value.get<std::int64_t>();
  if (result < low || result > high) {
    throw InputError("{} is {}, expected {} to {}", name(field), result, low, high);
  }
  return result;
}

std::int64_t JsonFields::integer_or(const std::string& field, std::int64_t fallback,
                                    std::int64_t low, std::int64_t high) {
  return has(field) ? integer(field, low, high) : fallback;
}

bool JsonFields::boolean_or(const std::string& field, bool fallback) {
  if (!has(field)) return fallback;
  const Json& value = object_.at(field);
  if (!value.is_boolean()) {
    throw InputError("{} is {}, expected true or false", name(field), value.type_name());
  }
  return value.get<bool>();
}

void JsonFields::ignore(const std::string& field) {
  if (std::find(known_.begin(), known_.end(), field) == known_.end()) known_.push_back(field);
}

void JsonFields::finish() const {
  for (const auto& item : object_.items()) {
    if (std::find(known_.begin(), known_.end(), item.key()) == known_.end()) {
      throw InputError("{} is not known here; known are: {}", name(item.key()),
                       fmt::join(known_, ", "));
    }
  }
}

std::string to_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hydraulis
