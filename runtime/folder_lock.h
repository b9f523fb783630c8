#pragma once

#include <filesystem>

namespace hydraulis {

/// Holds a folder for one writer, while it lives or until the process is gone, however it ends.
class FolderLock {
 public:
  /// Makes the folder if need be. Throws InputError when it cannot, or when somebody else holds
  /// it. On file systems without locks nothing is held.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  int fd_ = -1;
};

}  // namespace hydraulis
