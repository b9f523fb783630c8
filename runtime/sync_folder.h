#pragma once

#include <filesystem>

namespace hydraulis {

/// Makes the names in a folder durable (fsync). Throws InputError naming it.
void sync_folder(const std::filesystem::path& folder);

/// Renames and makes the new name durable. Throws InputError.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

/// An output folder that appears whole or not at all: it is filled under a temporary name beside
/// the target and renamed by commit(). Destroyed without commit(), it leaves nothing behind.
class NewFolder {
 public:
  /// Throws InputError when something other than an empty folder stands at the target, or the
  /// parent folder is missing or not writable.
  explicit NewFolder(std::filesystem::path target);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();

  const std::filesystem::path& temporary() const { return temporary_; }
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool committed_ = false;
};

}  // namespace hydraulis
