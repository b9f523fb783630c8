#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "traces/import/importer.h"

// The index of a Megatron-LM token file, little-endian and unpadded: magic (9 bytes), u64 version,
// u8 element type, u64 sequences, u64 entries of the document index, then i32 lengths, i64 byte
// offsets, i64 document index (first 0, last = sequences) and, for multimodal data, i8 modes.

namespace hydraulis {
namespace {

constexpr std::uint64_t kHeaderBytes = 34;
constexpr std::array<char, 9> kMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr const char* kTypeNames[] = {"",      "uint8",   "int8",    "int16", "int32",
                                      "int64", "float64", "float32", "uint16"};
constexpr std::uint64_t kTypeBytes[] = {0, 1, 1, 2, 4, 8, 8, 4, 2};

class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path)
      : name_(path.string()), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) throw InputError("{}: cannot open: {}", name_, std::strerror(errno));
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile() { ::close(fd_); }

  void read_at(std::uint64_t offset, char* target, std::size_t bytes) const {
    while (bytes > 0) {
      const ssize_t count = ::pread(fd_, target, bytes, static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        throw InputError("{}: cannot read at byte {}: {}", name_, offset,
                         count < 0 ? std::strerror(errno) : "the file has become shorter");
      }
      target += count;
      offset += static_cast<std::uint64_t>(count);
      bytes -= static_cast<std::size_t>(count);
    }
  }

 private:
  std::string name_;
  int fd_;
};

/// Elements of an array in the file, one after the other, through a small buffer. The arrays begin
/// at byte 34 and are not aligned, hence the copies.
template <typename T>
class ArrayReader {
 public:
  ArrayReader(const InputFile& file, std::uint64_t offset, std::uint64_t count)
      : file_(file), offset_(offset), left_(count) {}
  T next() {
    if (at_ == block_.size()) {
      block_.resize(std::min<std::uint64_t>(kBlock, left_));
      file_.read_at(offset_, reinterpret_cast<char*>(block_.data()), block_.size() * sizeof(T));
      offset_ += block_.size() * sizeof(T);
      left_ -= block_.size();
      at_ = 0;
    }
    return block_[at_++];
  }

 private:
  static constexpr std::uint64_t kBlock = 32 * 1024;
  const InputFile& file_;
  std::uint64_t offset_;
  std::uint64_t left_;
  std::vector<T> block_;
  std::size_t at_ = 0;
};

struct Header {
  std::uint64_t sequences = 0;
  std::uint64_t index_entries = 0;
  std::size_t type = 0;
};

template <typename T>
T get(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

Header read_header(const InputFile& file, const std::string& name, std::uint64_t size) {
  if (size < kHeaderBytes) {
    throw InputError("{}: {} bytes, a Megatron index has at least {}", name, size, kHeaderBytes);
  }
  std::array<char, kHeaderBytes> bytes{};
  file.read_at(0, bytes.data(), bytes.size());
  if (!std::equal(kMagic.begin(), kMagic.end(), bytes.begin())) {
    throw InputError("{}: not a Megatron index: it does not begin with MMIDIDX", name);
  }
  if (const auto version = get<std::uint64_t>(bytes.data() + 9); version != 1) {
    throw InputError("{}: Megatron index of version {}, expected 1", name, version);
  }
  Header header;
  header.type = get<std::uint8_t>(bytes.data() + 17);
  if (header.type < 1 || header.type > 8) {
    throw InputError("{}: element type code {}, expected 1 to 8", name, header.type);
  }
  header.sequences = get<std::uint64_t>(bytes.data() + 18);
  header.index_entries = get<std::uint64_t>(bytes.data() + 26);
  return header;
}

/// The counts are only claims until the file's size agrees with them.
void check_size(const Header& header, const std::string& name, std::uint64_t size) {
  std::uint64_t lengths_and_offsets = 0;
  std::uint64_t index = 0;
  std::uint64_t needed = 0;
  if (__builtin_mul_overflow(header.sequences, std::uint64_t{12}, &lengths_and_offsets) ||
      __builtin_mul_overflow(header.index_entries, std::uint64_t{8}, &index) ||
      __builtin_add_overflow(lengths_and_offsets, index, &needed) ||
      __builtin_add_overflow(needed, kHeaderBytes, &needed)) {
    throw InputError(
        "{}: the header claims {} sequences and {} document entries, more than any "
        "file can hold; the file has {} bytes",
        name, header.sequences, header.index_entries, size);
  }
  const bool with_modes = size > needed && size - needed == header.sequences;
  if (size != needed && !with_modes) {
    throw InputError("{}: {} bytes, expected {} for {} sequences and {} document entries ({})",
                     name, size, needed, header.sequences, header.index_entries,
                     size < needed ? "the file is truncated" : "something follows the index");
  }
  if (header.index_entries == 0 && header.sequences > 0) {
    throw InputError("{}: {} sequences, but the document index is empty", name, header.sequences);
  }
}

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
  std::error_code ec;
  const std::uint64_t size = std::filesystem::file_size(options.input, ec);
  if (ec) throw InputError("{}: cannot read: {}", name, ec.message());
  const Header header = read_header(file, name, size);
  check_size(header, name, size);

  const std::uint64_t sequences = header.sequences;
  ArrayReader<std::int32_t> lengths(file, kHeaderBytes, sequences);
  ArrayReader<std::int64_t> offsets(file, kHeaderBytes + 4 * sequences, sequences);
  ArrayReader<std::int64_t> index(file, kHeaderBytes + 12 * sequences, header.index_entries);
  OffsetCheck offset_check(kTypeBytes[header.type]);
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
    report.tokenizer = fmt::format("unknown (token ids stored as {})", kTypeNames[header.type]);
  }
  report.notes.push_back(options.unit == DocumentUnit::document
                             ? "a length is a document, the sum of its sequences"
                             : "a length is a sequence of the index");
  report.notes.push_back("lengths as stored, no end-of-text token added");
}

}  // namespace hydraulis
