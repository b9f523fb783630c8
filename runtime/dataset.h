#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "traces/import/import.h"

namespace hydraulis {

/// Token sequences (documents) of one corpus, in its order. Reading is safe from several threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  /// For messages: the file.
  const std::string& name() const { return name_; }
  /// Tokens of each sequence; may be 0.
  const std::vector<std::uint32_t>& lengths() const { return lengths_; }
  /// Tokens from `first` on of a sequence. Throws InputError when the file cannot be read.
  virtual void read(std::uint64_t sequence, std::uint64_t first,
                    std::span<std::int32_t> tokens) const = 0;
  /// Tokens at the beginning of a sequence that are context only: no target, so no loss.
  virtual std::uint32_t prompt_tokens(std::uint64_t sequence) const = 0;

 protected:
  explicit Dataset(std::string name) : name_(std::move(name)) {}
  std::string name_;
  std::vector<std::uint32_t> lengths_;
};

/// Where a data set comes from.
struct DatasetSource {
  std::string path;       ///< Megatron .idx or .bin, .jsonl or .txt
  std::string tokenizer;  ///< of texts: "bytes", "bpe:FOLDER" (traces/tokenizer/tokenizer.h)
  std::string text_field = "text";  ///< JSONL: field with the text
  /// JSONL for fine-tuning: fields with the prompt (no targets) and the response; both or neither.
  std::string prompt_field;
  std::string response_field;
  std::optional<std::int32_t> end_token;       ///< appended to every text; of Megatron files: none
  DocumentUnit unit = DocumentUnit::document;  ///< Megatron: what a sequence is
};

/// Opens a data set. Formats by the name's ending: `.idx` or `.bin` (Megatron), `.jsonl` (one
/// object a line), `.txt` (one document a file), the latter two also `.gz` and `.zst`. Megatron
/// tokens are read at their place; texts are tokenised here and held in memory, at 4 bytes a token.
/// Throws InputError: the file, line or sequence, and what was expected.
std::unique_ptr<Dataset> open_dataset(const DatasetSource& source);

namespace detail {
std::unique_ptr<Dataset> open_megatron(const DatasetSource& source);
/// `lines`: JSON Lines, a document a line; otherwise the file is one document.
std::unique_ptr<Dataset> open_text(const DatasetSource& source, bool lines);
}  // namespace detail

}  // namespace hydraulis
