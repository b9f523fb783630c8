#include "traces/import/megatron_index.h"

#include <array>
#include <cstring>
#include <string>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr std::array<char, 9> kMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr const char* kTypeNames[] = {"",      "uint8",   "int8",    "int16", "int32",
                                      "int64", "float64", "float32", "uint16"};
constexpr std::uint64_t kTypeBytes[] = {0, 1, 1, 2, 4, 8, 8, 4, 2};

template <typename T>
T get(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

MegatronHeader read_header(const InputFile& file) {
  const std::string& name = file.name();
  const std::uint64_t size = file.size();
  if (size < kMegatronHeaderBytes) {
    throw InputError("{}: {} bytes, a Megatron index has at least {}", name, size,
                     kMegatronHeaderBytes);
  }
  std::array<char, kMegatronHeaderBytes> bytes{};
  file.read_at(0, bytes.data(), bytes.size());
  if (!std::equal(kMagic.begin(), kMagic.end(), bytes.begin())) {
    throw InputError("{}: not a Megatron index: it does not begin with MMIDIDX", name);
  }
  if (const auto version = get<std::uint64_t>(bytes.data() + 9); version != 1) {
    throw InputError("{}: Megatron index of version {}, expected 1", name, version);
  }
  MegatronHeader header;
  header.type = get<std::uint8_t>(bytes.data() + 17);
  if (header.type < 1 || header.type > 8) {
    throw InputError("{}: element type code {}, expected 1 to 8", name, header.type);
  }
  header.sequences = get<std::uint64_t>(bytes.data() + 18);
  header.index_entries = get<std::uint64_t>(bytes.data() + 26);
  return header;
}

/// The counts are only claims until the file's size agrees with them.
void check_size(const MegatronHeader& header, const std::string& name, std::uint64_t size) {
  std::uint64_t lengths_and_offsets = 0;
  std::uint64_t index = 0;
  std::uint64_t needed = 0;
  if (__builtin_mul_overflow(header.sequences, std::uint64_t{12}, &lengths_and_offsets) ||
      __builtin_mul_overflow(header.index_entries, std::uint64_t{8}, &index) ||
      __builtin_add_overflow(lengths_and_offsets, index, &needed) ||
      __builtin_add_overflow(needed, kMegatronHeaderBytes, &needed)) {
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

}  // namespace

std::uint64_t MegatronHeader::token_bytes() const { return kTypeBytes[type]; }
const char* MegatronHeader::type_name() const { return kTypeNames[type]; }

MegatronHeader read_megatron_header(const InputFile& file) {
  const MegatronHeader header = read_header(file);
  check_size(header, file.name(), file.size());
  return header;
}

}  // namespace hydraulis
