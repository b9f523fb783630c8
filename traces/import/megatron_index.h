#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/input_file.h"

namespace hydraulis {

// The index of a Megatron-LM token file, little-endian and unpadded: magic (9 bytes), u64 version,
// u8 element type, u64 sequences, u64 entries of the document index, then i32 lengths, i64 byte
// offsets, i64 document index (first 0, last = sequences) and, for multimodal data, i8 modes.

inline constexpr std::uint64_t kMegatronHeaderBytes = 34;

struct MegatronHeader {
  std::uint64_t sequences = 0;
  std::uint64_t index_entries = 0;
  std::size_t type = 0;  ///< 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64, 7 f32, 8 u16
  std::uint64_t token_bytes() const;
  const char* type_name() const;  ///< "uint16", …
};

/// Reads the header and checks its claims against the file's size. Throws InputError.
MegatronHeader read_megatron_header(const InputFile& file);

/// Elements of an array in the file, one after the other, through a small buffer. The arrays begin
/// at byte 34 and are not aligned, hence the copies.
template <typename T>
class MegatronArray {
 public:
  MegatronArray(const InputFile& file, std::uint64_t offset, std::uint64_t count)
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

}  // namespace hydraulis
