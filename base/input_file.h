#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace hydraulis {

/// A plain file read at any place, without loading it. Throws InputError naming the file when it
/// cannot be opened or is no plain file.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& name() const { return name_; }
  std::uint64_t size() const { return size_; }  ///< bytes, when it was opened
  /// Reads exactly `bytes` bytes; InputError when the file ends before. May be called from several
  /// threads at once.
  void read_at(std::uint64_t offset, void* target, std::size_t bytes) const;

 private:
  std::string name_;
  int fd_;
  std::uint64_t size_ = 0;
};

}  // namespace hydraulis
