#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hydraulis {

/// Cuts a text into tokens.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Tokens of one document of UTF-8 text; no special tokens are added or recognised.
  virtual std::uint64_t count(std::string_view text) = 0;
  /// Appends their ids, count(text) of them. Throws InputError if this only estimates numbers.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) = 0;
  /// What a token is, for the trace's attribute.
  virtual std::string name() const = 0;
};

/// A tokenizer from its description; anything else is an InputError:
///   "bytes"               every byte is a token
///   "words" or "words:R"  an estimate of R tokens (1.33 if not given) per word between white space
///   "bpe:FOLDER"          byte-level BPE from FOLDER/vocab.json and FOLDER/merges.txt
///   "bpe:VOCAB,MERGES"    the same from two named files
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& description);

}  // namespace hydraulis
