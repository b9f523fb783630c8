#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace hydraulis {

using Json = nlohmann::ordered_json;

/// Parses a JSON file; InputError names the file, line and column, the field that an object has
/// twice, or nesting over 1,000 levels.
Json read_json_file(const std::filesystem::path& path);

/// Reads the fields of one JSON object with errors that name the file and the field, and refuses
/// fields nobody asked for, so that a misspelt name is never ignored.
///
///   JsonFields f(json, "cluster.json", "intra_node");
///   double bandwidth = f.number("bandwidth_gigabytes_per_second");   // required, finite
///   int lanes = f.integer_or("lanes", 1, 1, 64);
///   f.finish();                                                     // unknown fields are errors
class JsonFields {
 public:
  /// `where` is the file (or option) and `path` the object's place in it ("" for the root).
  JsonFields(const Json& object, std::string where, std::string path);

  bool has(const std::string& field);
  const Json& at(const std::string& field);
  std::string text(const std::string& field);
  std::string text_or(const std::string& field, const std::string& fallback);
  double number(const std::string& field);
  double number_or(const std::string& field, double fallback);
  /// Finite and > 0.
  double positive(const std::string& field);
  /// An integer in [low, high]; booleans, fractions and null are refused.
  std::int64_t integer(const std::string& field, std::int64_t low, std::int64_t high);
  std::int64_t integer_or(const std::string& field, std::int64_t fallback, std::int64_t low,
                          std::int64_t high);
  bool boolean_or(const std::string& field, bool fallback);
  /// Marks a field as known without reading it.
  void ignore(const std::string& field);
  /// Throws InputError if the object has a field that was never asked for.
  void finish() const;
  /// "file: field 'path.field'" for messages.
  std::string name(const std::string& field) const;

 private:
  const Json& object_;
  std::string where_;
  std::string path_;
  std::vector<std::string> known_;
};

/// JSON text with a newline at the end; NaN and infinity are never written (null instead).
std::string to_text(const Json& json);

}  // namespace hydraulis
