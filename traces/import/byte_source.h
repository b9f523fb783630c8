#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace hydraulis {

/// A file read from front to back, decompressed on the way (.gz and .zst by the name's ending).
/// A damaged or cut-off stream is an InputError naming the file.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills the buffer's beginning and returns the number of bytes; 0 at the end.
  virtual std::size_t read(std::span<char> buffer) = 0;
  /// Bytes of the file itself read so far, for the progress bar.
  virtual std::uint64_t file_position() const = 0;
};

std::unique_ptr<ByteSource> open_byte_source(const std::filesystem::path& path);

}  // namespace hydraulis
