#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "traces/import/import.h"

namespace hydraulis {

/// Takes the lengths an importer reads: leaves out empty documents, keeps the counts, and passes
/// blocks on, so that imports run in constant memory.
class LengthCollector {
 public:
  using Sink = std::function<void(std::span<const std::uint32_t>)>;
  LengthCollector(const ImportOptions& options, ImportReport& report, Sink sink);

  /// One document; `place` ("line 7", "document 3") is used in the message when the length does
  /// not fit 32 bits.
  void add(std::uint64_t length, const std::function<std::string()>& place);
  /// `count` documents of one length (at least 0), none of which may exceed 32 bits.
  void add_repeated(std::uint32_t length, std::uint64_t count);
  /// Passes on what is left.
  void finish();

 private:
  void flush();
  const ImportOptions& options_;
  ImportReport& report_;
  Sink sink_;
  std::vector<std::uint32_t> block_;
};

/// One input format. A new one is a file in this folder and a line in registered_importers().
struct Importer {
  std::string name;                  ///< for `--format`
  std::vector<std::string> endings;  ///< of the file name, with the dot
  bool needs_tokenizer;              ///< the file holds text, not lengths
  std::string description;
  /// Reads the file; sets `report.tokenizer` where the file or the options say it, and adds
  /// warnings and notes.
  void (*run)(const ImportOptions&, LengthCollector&, ImportReport&);
};

const std::vector<Importer>& registered_importers();

void import_megatron_idx(const ImportOptions&, LengthCollector&, ImportReport&);
void import_jsonl(const ImportOptions&, LengthCollector&, ImportReport&);
void import_lines(const ImportOptions&, LengthCollector&, ImportReport&);
void import_histogram(const ImportOptions&, LengthCollector&, ImportReport&);
void import_u32(const ImportOptions&, LengthCollector&, ImportReport&);

}  // namespace hydraulis
