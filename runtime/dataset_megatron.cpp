#include <cstring>
#include <limits>

#include "base/error.h"
#include "runtime/dataset.h"
#include "traces/import/megatron_index.h"

namespace hydraulis {
namespace {

/// Tokens in a Megatron .bin file, found through its .idx file.
class MegatronDataset : public Dataset {
 public:
  MegatronDataset(const std::filesystem::path& index_path, DocumentUnit unit)
      : Dataset(index_path.string()),
        tokens_(std::filesystem::path(index_path).replace_extension(".bin")) {
    const InputFile index(index_path);
    const MegatronHeader header = read_megatron_header(index);
    token_bytes_ = header.token_bytes();
    type_ = header.type;
    if (type_ == 6 || type_ == 7) {
      throw InputError("{}: its elements are {}, expected whole numbers", name_,
                       header.type_name());
    }
    read_sequences(index, header);
    if (unit == DocumentUnit::document) join_documents(index, header);
  }

  void read(std::uint64_t sequence, std::uint64_t first,
            std::span<std::int32_t> tokens) const override {
    if (first + tokens.size() > lengths_.at(sequence)) {
      throw std::logic_error(name_ + ": read outside the sequence");
    }
    std::vector<char> bytes(tokens.size() * token_bytes_);
    tokens_.read_at(offsets_[sequence] + first * token_bytes_, bytes.data(), bytes.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::int64_t token = token_at(bytes.data() + i * token_bytes_);
      if (token < 0 || token > std::numeric_limits<std::int32_t>::max()) {
        throw InputError("{}: sequence {}: token {} is {}, expected 0 to {}", name_, sequence,
                         first + i, token, std::numeric_limits<std::int32_t>::max());
      }
      tokens[i] = static_cast<std::int32_t>(token);
    }
  }
  std::uint32_t prompt_tokens(std::uint64_t) const override { return 0; }

 private:
  void read_sequences(const InputFile& index, const MegatronHeader& header) {
    const std::uint64_t count = header.sequences;
    MegatronArray<std::int32_t> lengths(index, kMegatronHeaderBytes, count);
    MegatronArray<std::int64_t> offsets(index, kMegatronHeaderBytes + 4 * count, count);
    lengths_.reserve(count);
    offsets_.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::int32_t length = lengths.next();
      const std::int64_t offset = offsets.next();
      if (length < 0) {
        throw InputError("{}: sequence {} has length {}, expected 0 or more", name_, i, length);
      }
      const std::uint64_t bytes = static_cast<std::uint64_t>(length) * token_bytes_;
      if (offset < 0 || bytes > tokens_.size() ||
          static_cast<std::uint64_t>(offset) > tokens_.size() - bytes) {
        throw InputError("{}: sequence {} has {} tokens at byte {}, but {} has {} bytes", name_, i,
                         length, offset, tokens_.name(), tokens_.size());
      }
      lengths_.push_back(static_cast<std::uint32_t>(length));
      offsets_.push_back(static_cast<std::uint64_t>(offset));
    }
  }

  void join_documents(const InputFile& index, const MegatronHeader& header) {
    MegatronArray<std::int64_t> entries(index, kMegatronHeaderBytes + 12 * header.sequences,
                                        header.index_entries);
    std::vector<std::uint32_t> lengths;
    std::vector<std::uint64_t> offsets;
    std::uint64_t at = 0;
    for (std::uint64_t entry = 0; entry < header.index_entries; ++entry) {
      const std::int64_t end = entries.next();
      if (end < static_cast<std::int64_t>(at) ||
          static_cast<std::uint64_t>(end) > header.sequences || (entry == 0 && end != 0)) {
        throw InputError("{}: document index entry {} is {}, expected {} to {}", name_, entry, end,
                         at, entry == 0 ? 0 : header.sequences);
      }
      if (entry == 0) continue;
      std::uint64_t tokens = 0;
      const std::uint64_t first = at;
      for (; at < static_cast<std::uint64_t>(end); ++at) {
        if (offsets_[at] != offsets_[first] + tokens * token_bytes_) {
          throw InputError(
              "{}: sequence {} of document {} does not follow the one before it; take sequences "
              "one by one (unit sequence)",
              name_, at, entry - 1);
        }
        tokens += lengths_[at];
      }
      if (tokens > std::numeric_limits<std::uint32_t>::max()) {
        throw InputError("{}: document {} has {} tokens, at most {} are supported", name_,
                         entry - 1, tokens, std::numeric_limits<std::uint32_t>::max());
      }
      lengths.push_back(static_cast<std::uint32_t>(tokens));
      offsets.push_back(tokens == 0 ? 0 : offsets_[first]);
    }
    if (at != header.sequences) {
      throw InputError("{}: the document index ends at sequence {}, expected {}", name_, at,
                       header.sequences);
    }
    lengths_ = std::move(lengths);
    offsets_ = std::move(offsets);
  }

  template <typename T>
  static std::int64_t value(const char* bytes) {
    T token{};
    std::memcpy(&token, bytes, sizeof token);
    return static_cast<std::int64_t>(token);
  }
  std::int64_t token_at(const char* bytes) const {
    switch (type_) {
      case 1:
        return value<std::uint8_t>(bytes);
      case 2:
        return value<std::int8_t>(bytes);
      case 3:
        return value<std::int16_t>(bytes);
      case 4:
        return value<std::int32_t>(bytes);
      case 8:
        return value<std::uint16_t>(bytes);
      default:
        return value<std::int64_t>(bytes);
    }
  }

  InputFile tokens_;
  std::vector<std::uint64_t> offsets_;  ///< bytes
  std::uint64_t token_bytes_ = 0;
  std::size_t type_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> detail::open_megatron(const DatasetSource& source) {
  return std::make_unique<MegatronDataset>(
      std::filesystem::path(source.path).replace_extension(".idx"), source.unit);
}

}  // namespace hydraulis
