#include "traces/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "traces/import/number.h"
#include "traces/tokenizer/bpe.h"
#include "traces/tokenizer/unicode.h"

namespace hydraulis {
namespace {

class Bytes : public Tokenizer {
 public:
  std::uint64_t count(std::string_view text) override { return text.size(); }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  std::string name() const override { return "bytes"; }
};

class Words : public Tokenizer {
 public:
  explicit Words(double tokens_per_word) : tokens_per_word_(tokens_per_word) {}
  std::uint64_t count(std::string_view text) override {
    std::uint64_t words = 0;
    bool inside = false;
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint point = decode(text, at);
      const bool blank = point.kind == CharacterClass::space;
      if (!blank && !inside) ++words;
      inside = !blank;
      at += point.bytes;
    }
    // A document with words is never estimated as empty.
    const double tokens = std::floor(static_cast<double>(words) * tokens_per_word_ + 0.5);
    return words == 0 ? 0 : static_cast<std::uint64_t>(std::fmax(tokens, 1));
  }
  void encode(std::string_view, std::vector<std::int32_t>&) override {
    throw InputError(
        "tokenizer '{}': only estimates how many tokens a text has, expected bytes or "
        "bpe, which give their ids",
        name());
  }
  std::string name() const override {
    return fmt::format("estimate: {} tokens per word", tokens_per_word_);
  }

 private:
  double tokens_per_word_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& description) {
  const std::size_t colon = description.find(':');
  const std::string kind = description.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : description.substr(colon + 1);
  if (description == "bytes") return std::make_unique<Bytes>();
  if (kind == "words") {
    double ratio = 1.33;
    if (colon != std::string::npos &&
        (!parse_number(std::string_view(rest), ratio) || !(ratio > 0 && ratio <= 1000))) {
      throw InputError("tokenizer '{}': expected words:R with R tokens per word, 0 < R <= 1000",
                       description);
    }
    return std::make_unique<Words>(ratio);
  }
  if (kind == "bpe" && !rest.empty()) {
    const std::size_t comma = rest.find(',');
    if (comma != std::string::npos) {
      return load_bpe(rest.substr(0, comma), rest.substr(comma + 1));
    }
    const std::filesystem::path folder(rest);
    return load_bpe(folder / "vocab.json", folder / "merges.txt");
  }
  throw InputError(
      "tokenizer '{}' is not known, expected bytes, words:R, bpe:FOLDER (with vocab.json and "
      "merges.txt) or bpe:VOCAB,MERGES",
      description);
}

}  // namespace hydraulis
