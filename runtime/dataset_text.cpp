#include <algorithm>
#include <limits>
#include <set>

#include "base/error.h"
#include "runtime/dataset.h"
#include "traces/import/byte_source.h"
#include "traces/import/line_reader.h"
#include "traces/tokenizer/tokenizer.h"

namespace hydraulis {
namespace {

constexpr std::size_t kLongestLine = 256u << 20;
constexpr std::size_t kLongestText = std::size_t{1} << 31;

/// Texts, tokenised once.
class TextDataset : public Dataset {
 public:
  explicit TextDataset(const DatasetSource& source) : Dataset(source.path) {
    if (source.tokenizer.empty()) {
      throw InputError("{}: texts need a tokenizer: bytes, bpe:FOLDER or bpe:VOCAB,MERGES",
                       source.path);
    }
    if (source.prompt_field.empty() != source.response_field.empty()) {
      throw InputError("{}: a prompt field and a response field go together", source.path);
    }
    tokenizer_ = make_tokenizer(source.tokenizer);
    tokenizer_->encode("", tokens_);  // refuses one that only estimates, whatever the file holds
    end_token_ = source.end_token;
    starts_.push_back(0);
  }

  void read_text() {
    const auto file = open_byte_source(name_);
    std::string text;
    std::vector<char> block(1u << 16);
    while (const std::size_t bytes = file->read(block)) {
      text.append(block.data(), bytes);
      if (text.size() > kLongestText) {
        throw InputError("{}: longer than {} bytes, the limit for one document", name_,
                         kLongestText);
      }
    }
    add(text, "");
    finish();
  }

  void read_lines(const DatasetSource& source) {
    const bool pairs = !source.prompt_field.empty();
    LineReader reader(source.path, kLongestLine);
    std::string_view line;
    while (reader.next(line)) {
      if (trimmed(line).empty()) continue;
      const std::string where = fmt::format("{}: line {}", source.path, reader.number());
      const nlohmann::json object = parse_object(line, where);
      if (!object.is_object()) {
        throw InputError("{}: is {}, expected an object", where, object.type_name());
      }
      if (pairs) {
        add(text_of(object, source.prompt_field, where),
            text_of(object, source.response_field, where), true);
      } else {
        add("", text_of(object, source.text_field, where));
      }
    }
    finish();
  }

  void read(std::uint64_t sequence, std::uint64_t first,
            std::span<std::int32_t> tokens) const override {
    if (first + tokens.size() > lengths_.at(sequence)) {
      throw std::logic_error(name_ + ": read outside the sequence");
    }
    const auto begin = tokens_.begin() + static_cast<std::ptrdiff_t>(starts_[sequence] + first);
    std::copy_n(begin, tokens.size(), tokens.begin());
  }
  std::uint32_t prompt_tokens(std::uint64_t sequence) const override {
    return prompts_.empty() ? 0 : prompts_.at(sequence);
  }

 private:
  static nlohmann::json parse_object(std::string_view line, const std::string& where) {
    std::set<std::string> fields;
    const auto refuse_twice = [&](int depth, nlohmann::json::parse_event_t event,
                                  const nlohmann::json& name) {
      if (event == nlohmann::json::parse_event_t::key && depth == 1 &&
          !fields.insert(name.get<std::string>()).second) {
        throw InputError("{}: field '{}' is given twice", where, name.get<std::string>());
      }
      return true;
    };
    auto object = nlohmann::json::parse(line.begin(), line.end(), refuse_twice, false);
    if (object.is_discarded()) throw InputError("{}: not valid JSON", where);
    return object;
  }

  static const std::string& text_of(const nlohmann::json& object, const std::string& field,
                                    const std::string& where) {
    const auto found = object.find(field);
    if (found == object.end()) throw InputError("{}: field '{}' is missing", where, field);
    if (!found->is_string()) {
      throw InputError("{}: field '{}' is {}, expected a string", where, field, found->type_name());
    }
    return found->get_ref<const std::string&>();
  }

  /// Prompt and response are tokenised apart, so that no token is half prompt.
  void add(std::string_view prompt, std::string_view response, bool pair = false) {
    const std::size_t start = tokens_.size();
    tokenizer_->encode(prompt, tokens_);
    const std::size_t prompt_tokens = tokens_.size() - start;
    tokenizer_->encode(response, tokens_);
    // An empty text stays empty: an end token alone teaches nothing.
    if (end_token_ && tokens_.size() > start) tokens_.push_back(*end_token_);
    const std::size_t length = tokens_.size() - start;
    if (length > std::numeric_limits<std::uint32_t>::max()) {
      throw InputError("{}: sequence {} has {} tokens, at most {} are supported", name_,
                       lengths_.size(), length, std::numeric_limits<std::uint32_t>::max());
    }
    starts_.push_back(tokens_.size());
    lengths_.push_back(static_cast<std::uint32_t>(length));
    if (pair) prompts_.push_back(static_cast<std::uint32_t>(prompt_tokens));
  }

  void finish() {
    tokens_.shrink_to_fit();
    tokenizer_.reset();
  }

  std::unique_ptr<Tokenizer> tokenizer_;  ///< while reading
  std::optional<std::int32_t> end_token_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::uint64_t> starts_;   ///< of each sequence in tokens_
  std::vector<std::uint32_t> prompts_;  ///< tokens without loss; empty: none anywhere
};

}  // namespace

std::unique_ptr<Dataset> detail::open_text(const DatasetSource& source, bool lines) {
  auto dataset = std::make_unique<TextDataset>(source);
  if (lines) {
    dataset->read_lines(source);
  } else if (!source.prompt_field.empty()) {
    throw InputError("{}: a prompt and a response field are for .jsonl files", source.path);
  } else {
    dataset->read_text();
  }
  return dataset;
}

}  // namespace hydraulis
