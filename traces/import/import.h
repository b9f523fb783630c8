#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "traces/length_trace.h"

namespace hydraulis {

/// What counts as one document of a Megatron .idx: its documents, or its sequences.
enum class DocumentUnit { document, sequence };

/// "document" or "sequence"; anything else is an InputError.
DocumentUnit parse_document_unit(const std::string& text);

struct ImportOptions {
  std::filesystem::path input;
  std::string format;     ///< name of an importer; empty: by the file name's ending
  std::string tokenizer;  ///< for text: see make_tokenizer(); for lists of lengths: a remark
  std::string text_field = "text";  ///< JSONL: field that holds the text
  bool skip_bad_lines = false;      ///< lines that cannot be read are counted, not refused
  DocumentUnit unit = DocumentUnit::document;
  std::string source;  ///< for people; empty: the file's name
};

/// What an import read.
struct ImportReport {
  std::string format;
  std::string source;
  std::string tokenizer;
  std::uint64_t documents_read = 0;   ///< empty ones included
  std::uint64_t empty_documents = 0;  ///< left out of the trace
  std::uint64_t bad_lines = 0;        ///< left out because of skip_bad_lines
  std::uint64_t tokens = 0;
  std::uint64_t shortest = 0;  ///< of the documents kept; the shortest of all is 0 if any is empty
  std::uint64_t longest = 0;
  std::vector<std::string> warnings;
  std::vector<std::string> notes;

  std::uint64_t sequences() const { return documents_read - empty_documents; }
  double mean_with_empty() const;     ///< tokens per document read
  double mean_without_empty() const;  ///< tokens per sequence kept
};

Json to_json(const ImportReport& report);

/// A format that can be imported, for listings.
struct ImportFormat {
  std::string name;
  std::vector<std::string> endings;
  std::string description;
};
std::vector<ImportFormat> import_formats();

/// Reads `options.input` and writes the trace store `output` in constant memory, whole or not at
/// all. A file that is not what it claims, or holds no tokens, is refused with the reason
/// (InputError).
ImportReport import_trace(const ImportOptions& options, const std::filesystem::path& output);

/// The same into memory. `report` may be null.
LengthTrace import_in_memory(const ImportOptions& options, ImportReport* report = nullptr);

}  // namespace hydraulis
