#include "runtime/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace hydraulis {

int open_for_append(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) throw InputError("{}: cannot write: {}", path.string(), std::strerror(errno));
  return fd;
}

void append_text(int fd, const std::filesystem::path& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw InputError("{}: cannot write: {}", path.string(), std::strerror(errno));
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace hydraulis
