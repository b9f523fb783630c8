#include "runtime/sync_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace hydraulis {
namespace fs = std::filesystem;

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!synced) throw InputError("{}: cannot sync: {}", folder.string(), std::strerror(error));
}

void rename_durably(const fs::path& from, const fs::path& to) {
  std::error_code ec;
  fs::rename(from, to, ec);
  if (ec) throw InputError("{}: cannot rename to {}: {}", from.string(), to.string(), ec.message());
  sync_folder(to.has_parent_path() ? to.parent_path() : fs::path("."));
}

NewFolder::NewFolder(fs::path target) : target_(std::move(target)) {
  if (!target_.has_filename()) target_ = target_.parent_path();  // "folder/"
  std::error_code ec;
  if (target_.empty()) throw InputError("output folder: the name is empty");
  if (fs::exists(fs::symlink_status(target_, ec)) &&
      !(fs::is_directory(fs::symlink_status(target_, ec)) && fs::is_empty(target_, ec))) {
    throw InputError("{}: stands there already, expected a new or an empty folder",
                     target_.string());
  }
  const fs::path parent = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
  if (!fs::is_directory(parent, ec)) {
    throw InputError("{}: the folder {} does not exist", target_.string(), parent.string());
  }
  std::string name = (parent / ("." + target_.filename().string() + ".XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw InputError("{}: cannot write: {}", target_.string(), std::strerror(errno));
  }
  // mkdtemp makes the folder private; outputs follow the user's umask.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::chmod(name.c_str(), 0777 & ~mask);
  temporary_ = name;
}

NewFolder::~NewFolder() {
  if (committed_) return;
  std::error_code ec;
  fs::remove_all(temporary_, ec);
}

void NewFolder::commit() {
  sync_folder(temporary_);
  rename_durably(temporary_, target_);
  committed_ = true;
}

}  // namespace hydraulis
