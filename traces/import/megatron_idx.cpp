#include <fmt/format.h>

#include <system_error>

#include "base/error.h"
#include "base/progress.h"
#include "traces/import/importer.h"
#include "traces/import/megatron_index.h"

namespace hydraulis {
namespace {

/// Follows the byte offsets beside the lengths. They are not needed, so errors are warnings.
class OffsetCheck {
 public:
  explicit OffsetCheck(std::uint64_t element_bytes) : element_bytes_(element_bytes) {}
  void add(std::int32_t length, std::int64_t offset) {
    if (offset < 0 || static_cast<std::uint64_t>(offset) != expected_) {
      if (wrong_ == 0) {
        first_ = fmt::format("sequence {} at byte {}, expected {}", sequences_, offset, expected_);
      }
      ++wrong_;
    }
    ++sequences_;
    expected_ += static_cast<std::uint64_t>(length) * element_bytes_;
  }
  std::uint64_t bytes() const { return expected_; }
  void report(ImportReport& report) const {
    if (wrong_ == 0) return;
    report.warnings.push_back(
        fmt::format("pointers inconsistent: {} of {} sequences, the first is {}; the lengths are "
                    "used as they stand",
                    wrong_, sequences_, first_));
  }

 private:
  std::uint64_t element_bytes_;
  std::uint64_t expected_ = 0;
  std::uint64_t sequences_ = 0;
  std::uint64_t wrong_ = 0;
  std::string first_;
};

void compare_token_file(const std::filesystem::path& index, std::uint64_t expected,
                        ImportReport& report) {
  std::filesystem::path tokens = index;
  tokens.replace_extension(".bin");
  std::error_code ec;
  if (!std::filesystem::exists(tokens, ec)) return;
  const std::uint64_t size = std::filesystem::file_size(tokens, ec);
  if (ec || size == expected) return;
  report.warnings.push_back(fmt::format("{} has {} bytes, the index describes {}",
                                        tokens.filename().string(), size, expected));
}

}  // namespace

void import_megatron_idx(const ImportOptions& options, LengthCollector& collector,
                         ImportReport& report) {
  const std::string name = options.input.string();
  const InputFile file(options.input);
  const MegatronHeader header = read_megatron_header(file);

  const std::uint64_t sequences = header.sequences;
  MegatronArray<std::int32_t> lengths(file, kMegatronHeaderBytes, sequences);
  MegatronArray<std::int64_t> offsets(file, kMegatronHeaderBytes + 4 * sequences, sequences);
  MegatronArray<std::int64_t> index(file, kMegatronHeaderBytes + 12 * sequences,
                                    header.index_entries);
  OffsetCheck offset_check(header.token_bytes());
  Progress progress("reading " + options.input.filename().string(), sequences, "sequences");

  std::uint64_t done = 0;  // sequences read
  std::int64_t previous = 0;
  for (std::uint64_t entry = 0; entry < header.index_entries; ++entry) {
    const std::int64_t end = index.next();
    if (entry == 0 && end != 0) {
      throw InputError("{}: document index begins with {}, expected 0", name, end);
    }
    if (end < previous || static_cast<std::uint64_t>(end) > sequences) {
      throw InputError("{}: document index entry {} is {}, expected {} to {}", name, entry, end,
                       previous, sequences);
    }
    previous = end;
    std::uint64_t document_tokens = 0;
    while (done < static_cast<std::uint64_t>(end)) {
      const std::int32_t length = lengths.next();
      if (length < 0) {
        throw InputError("{}: sequence {} has length {}, expected 0 or more", name, done, length);
      }
      offset_check.add(length, offsets.next());
      ++done;
      document_tokens += static_cast<std::uint64_t>(length);
      if (options.unit == DocumentUnit::sequence) {
        collector.add_repeated(static_cast<std::uint32_t>(length), 1);
      }
      if (done % 65536 == 0) progress.update(done);
    }
    if (entry > 0 && options.unit == DocumentUnit::document) {
      collector.add(document_tokens, [&] {
        return fmt::format("document {} (its sequences can be taken one by one: unit sequence)",
                           entry - 1);
      });
    }
  }
  if (done != sequences) {
    throw InputError("{}: the document index ends at sequence {}, expected {}", name, done,
                     sequences);
  }
  offset_check.report(report);
  compare_token_file(options.input, offset_check.bytes(), report);
  if (options.tokenizer.empty()) {
    report.tokenizer = fmt::format("unknown (token ids stored as {})", header.type_name());
  }
  report.notes.push_back(options.unit == DocumentUnit::document
                             ? "a length is a document, the sum of its sequences"
                             : "a length is a sequence of the index");
  report.notes.push_back("lengths as stored, no end-of-text token added");
}

}  // namespace hydraulis
