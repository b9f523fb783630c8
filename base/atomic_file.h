#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace hydraulis {

/// An output file that appears whole or not at all: it is written under a temporary name beside the
/// target and renamed by commit(). Destroyed without commit(), it leaves nothing behind.
class AtomicFile {
 public:
  /// Reserves a temporary name; throws InputError when the folder does not exist, is not writable,
  /// or the target is a folder.
  explicit AtomicFile(std::filesystem::path target);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  /// Where to write until commit().
  const std::filesystem::path& temporary() const { return temporary_; }
  /// Syncs the file to disk and renames it to the target. Throws InputError on failure.
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool committed_ = false;
};

/// Writes a whole text file atomically. Throws InputError naming the file on failure.
void write_text_file(const std::filesystem::path& target, std::string_view text);
/// The same for a text that comes in pieces: `write` is called once and hands them to its argument.
void write_text_file(
    const std::filesystem::path& target,
    const std::function<void(const std::function<void(std::string_view)>& sink)>& write);

/// Reads a whole text file of at most `max_bytes`. Throws InputError naming the file.
std::string read_text_file(const std::filesystem::path& path, std::size_t max_bytes = 64u << 20);

}  // namespace hydraulis
