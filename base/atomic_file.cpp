#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "base/error.h"

namespace hydraulis {
namespace fs = std::filesystem;

AtomicFile::AtomicFile(fs::path target) : target_(std::move(target)) {
  std::error_code ec;
  if (target_.empty()) throw InputError("output file: the name is empty");
  if (fs::is_directory(target_, ec)) {
    throw InputError("{}: is a folder, expected a file name to write to", target_.string());
  }
  // Renaming replaces what stands at the target: a link is followed, a device or pipe left alone.
  if (fs::is_symlink(target_, ec)) {
    const fs::path linked = fs::canonical(target_, ec);
    if (!ec) target_ = linked;
  }
  if (fs::exists(target_, ec) && !fs::is_regular_file(target_, ec)) {
    throw InputError("{}: is not a plain file, expected a file name to write to", target_.string());
  }
  const fs::path folder = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, ec)) {
    throw InputError("{}: the folder {} does not exist", target_.string(), folder.string());
  }
  std::string name = (folder / ("." + target_.filename().string() + ".XXXXXX")).string();
  const int fd = ::mkstemp(name.data());
  if (fd < 0) throw InputError("{}: cannot write: {}", target_.string(), std::strerror(errno));
  // mkstemp makes the file private; outputs follow the user's umask like any other file.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(fd, 0666 & ~mask);
  ::close(fd);
  temporary_ = name;
}

AtomicFile::~AtomicFile() {
  if (committed_) return;
  std::error_code ec;
  fs::remove(temporary_, ec);
}

void AtomicFile::commit() {
  const int fd = ::open(temporary_.c_str(), O_RDONLY);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const int sync_error = errno;
  if (fd >= 0) ::close(fd);
  if (!synced)
    throw InputError("{}: cannot write: {}", target_.string(), std::strerror(sync_error));
  std::error_code ec;
  fs::rename(temporary_, target_, ec);
  if (ec) throw InputError("{}: cannot write: {}", target_.string(), ec.message());
  committed_ = true;
}

void write_text_file(const fs::path& target, std::string_view text) {
  write_text_file(target, [text](const auto& sink) { sink(text); });
}

void write_text_file(
    const fs::path& target,
    const std::function<void(const std::function<void(std::string_view)>& sink)>& write) {
  AtomicFile file(target);
  {
    std::ofstream out(file.temporary(), std::ios::binary);
    const auto check = [&] {
      if (!out) throw InputError("{}: cannot write: {}", target.string(), std::strerror(errno));
    };
    write([&](std::string_view text) {
      out.write(text.data(), static_cast<std::streamsize>(text.size()));
      check();
    });
    out.close();
    check();
  }
  file.commit();
}

std::string read_text_file(const fs::path& path, std::size_t max_bytes) {
  std::error_code ec;
  if (fs::is_directory(path, ec))
    throw InputError("{}: is a folder, expected a file", path.string());
  std::ifstream in(path, std::ios::binary);
  if (!in) throw InputError("{}: cannot open: {}", path.string(), std::strerror(errno));
  std::string text;
  char block[1 << 16];
  while (in.read(block, sizeof block), in.gcount() > 0) {
    text.append(block, static_cast<std::size_t>(in.gcount()));
    if (text.size() > max_bytes) {
      throw InputError("{}: larger than {} bytes, the limit for this kind of file", path.string(),
                       max_bytes);
    }
  }
  if (in.bad()) throw InputError("{}: cannot read", path.string());
  return text;
}

}  // namespace hydraulis
