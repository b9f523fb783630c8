#include "runtime/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"

namespace hydraulis::detail {
namespace {

constexpr std::size_t kMostDimensions = 64;

/// Follows a JSON document of few levels and hands its values on as they are parsed, so that a
/// hostile one is refused before much of it is in memory. Names twice in an object are refused.
class StrictReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  StrictReader(const std::string& where, std::size_t most_levels)
      : where_(where), most_levels_(most_levels) {}

  void read(std::string_view text) { nlohmann::json::sax_parse(text.begin(), text.end(), this); }

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_integer(number_integer_t) override { return other("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a fraction"); }
  bool binary(binary_t&) override { return other("binary"); }
  bool number_unsigned(number_unsigned_t value) override {
    on_number(value);
    return true;
  }
  bool string(string_t& value) override {
    on_text(value);
    return true;
  }
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    Level& level = levels_.back();
    if (!level.names.insert(name).second) refuse("'{}' is given twice", name);
    level.name = name;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    refuse("not valid JSON at byte {}", position);
  }

 protected:
  virtual void on_number(std::uint64_t value) = 0;
  virtual void on_text(std::string& value) = 0;
  virtual void on_other(const char* type) = 0;
  virtual void on_open(bool object) = 0;
  virtual void on_close() = 0;

  std::size_t depth() const { return levels_.size(); }
  /// Name being read in the object `level` levels below the document.
  const std::string& name_at(std::size_t level) const { return levels_[level].name; }

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw InputError("{}: {}", where_, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  struct Level {
    std::unordered_set<std::string> names;
    std::string name;
  };
  bool other(const char* type) {
    on_other(type);
    return true;
  }
  bool open(bool object) {
    if (levels_.size() == most_levels_) refuse("nested deeper than {} levels", most_levels_);
    on_open(object);
    levels_.emplace_back();
    return true;
  }
  bool close() {
    levels_.pop_back();
    on_close();
    return true;
  }

  const std::string& where_;
  std::size_t most_levels_;
  std::vector<Level> levels_;
};

class HeaderReader : public StrictReader {
 public:
  explicit HeaderReader(const std::string& where) : StrictReader(where, 3) {}
  SafetensorsHeader header;

 private:
  void on_open(bool object) override {
    if (depth() == 0) {
      if (!object) refuse("the header is not an object");
    } else if (depth() == 1) {
      if (!object) refuse("tensor '{}' is an array, expected an object", name_at(0));
      in_metadata_ = name_at(0) == "__metadata__";
      seen_ = {};
      if (!in_metadata_) {
        header.entries.emplace_back();
        header.entries.back().tensor.name = name_at(0);
      }
    } else {
      if (in_metadata_ || object) unexpected("an object or array");
      numbers_.clear();
      if (name_at(1) != "shape" && name_at(1) != "data_offsets") unexpected("an array");
    }
  }

  void on_close() override {
    if (depth() == 1 && !in_metadata_) {
      if (!seen_.type || !seen_.shape || !seen_.offsets) {
        refuse("tensor '{}' lacks dtype, shape or data_offsets", name_at(0));
      }
    } else if (depth() == 2) {
      HeaderEntry& entry = header.entries.back();
      if (name_at(1) == "shape") {
        seen_.shape = true;
        for (const std::uint64_t size : numbers_) {
          if (size > static_cast<std::uint64_t>(INT64_MAX)) {
            refuse("tensor '{}' has a dimension of {}", name_at(0), size);
          }
          entry.tensor.shape.push_back(static_cast<std::int64_t>(size));
        }
      } else {
        seen_.offsets = true;
        if (numbers_.size() != 2) {
          refuse("tensor '{}' has {} data_offsets, expected 2", name_at(0), numbers_.size());
        }
        entry.begin = numbers_[0];
        entry.end = numbers_[1];
      }
    }
  }

  void on_number(std::uint64_t value) override {
    if (depth() != 3) unexpected("a number");
    if (numbers_.size() == kMostDimensions) {
      refuse("tensor '{}' has more than {} dimensions", name_at(0), kMostDimensions);
    }
    numbers_.push_back(value);
  }

  void on_text(std::string& value) override {
    if (depth() == 2 && in_metadata_) {
      header.metadata.emplace(name_at(1), value);
    } else if (depth() == 2 && name_at(1) == "dtype") {
      seen_.type = true;
      if (!parse_stored_type(value, header.entries.back().tensor.type)) {
        refuse("tensor '{}' has dtype '{}', which is not known", name_at(0), value);
      }
    } else {
      unexpected("a string");
    }
  }

  void on_other(const char* type) override { unexpected(type); }

  [[noreturn]] void unexpected(const char* type) const {
    if (depth() == 0) refuse("the header is {}, expected an object", type);
    if (depth() == 1) refuse("tensor '{}' is {}, expected an object", name_at(0), type);
    refuse("field '{}' of '{}' is {}, which does not belong there", name_at(1), name_at(0), type);
  }

  struct Seen {
    bool type = false;
    bool shape = false;
    bool offsets = false;
  };
  bool in_metadata_ = false;
  Seen seen_;
  std::vector<std::uint64_t> numbers_;
};

class IndexReader : public StrictReader {
 public:
  explicit IndexReader(const std::string& where) : StrictReader(where, 16) {}
  std::vector<std::pair<std::string, std::string>> entries;
  bool found = false;

 private:
  bool in_map() const { return depth() == 2 && name_at(0) == "weight_map"; }
  void on_open(bool object) override {
    if (depth() == 1 && name_at(0) == "weight_map") {
      if (!object) refuse("field 'weight_map' is an array, expected an object");
      found = true;
    }
    if (in_map()) refuse("the file of '{}' is not a name", name_at(1));
  }
  void on_close() override {}
  void on_number(std::uint64_t) override { on_other("a number"); }
  void on_other(const char* type) override {
    if (in_map()) refuse("the file of '{}' is {}, expected a name", name_at(1), type);
  }
  void on_text(std::string& value) override {
    if (in_map()) entries.emplace_back(name_at(1), value);
  }
};

/// Bytes of a tensor by its shape; refuses what no file can hold.
std::uint64_t bytes_by_shape(const StoredTensor& tensor, const std::string& where) {
  auto bytes = static_cast<std::uint64_t>(size_of(tensor.type));
  bool empty = false;
  for (const std::int64_t size : tensor.shape) {
    if (size == 0) empty = true;
    if (size > 0 && __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) {
      throw InputError("{}: tensor '{}': the product of its shape overflows 64 bits", where,
                       tensor.name);
    }
  }
  return empty ? 0 : bytes;
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                           const std::string& where) {
  HeaderReader reader(where);
  reader.read(text);
  SafetensorsHeader header = std::move(reader.header);
  std::ranges::stable_sort(header.entries, {}, [](const HeaderEntry& entry) {
    return std::pair(entry.begin, entry.end);
  });
  std::uint64_t expected = 0;
  for (const HeaderEntry& entry : header.entries) {
    const std::uint64_t bytes = bytes_by_shape(entry.tensor, where);
    if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
      throw InputError("{}: tensor '{}' has data_offsets {} to {}, but its shape takes {} bytes",
                       where, entry.tensor.name, entry.begin, entry.end, bytes);
    }
    if (entry.begin != expected) {
      throw InputError("{}: tensor '{}' begins at byte {} of the data, expected {} ({})", where,
                       entry.tensor.name, entry.begin, expected,
                       entry.begin > expected ? "a hole" : "an overlap");
    }
    expected = entry.end;
  }
  if (expected != data_bytes) {
    throw InputError("{}: its tensors take {} bytes, but {} follow the header ({})", where,
                     expected, data_bytes,
                     expected > data_bytes ? "the file is truncated" : "something follows them");
  }
  return header;
}

std::vector<std::pair<std::string, std::string>> parse_safetensors_index(std::string_view text,
                                                                         const std::string& where) {
  IndexReader reader(where);
  reader.read(text);
  if (!reader.found) throw InputError("{}: field 'weight_map' is missing", where);
  return std::move(reader.entries);
}

}  // namespace hydraulis::detail
