#include "runtime/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "base/error.h"
#include "base/json.h"
#include "runtime/crc32c.h"
#include "runtime/safetensors_header.h"

namespace hydraulis {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMostHeaderBytes = 100'000'000;
constexpr std::uint64_t kPrefixBytes = 8;
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

std::string read_header_text(const InputFile& file) {
  std::uint64_t bytes = 0;
  if (file.size() >= kPrefixBytes) file.read_at(0, &bytes, kPrefixBytes);
  constexpr std::uint64_t kPointer = 0x206e6f6973726576;  // "version ", of a Git LFS pointer
  if (bytes == kPointer) {
    throw InputError("{}: is a Git LFS pointer, not the file itself; fetch it with git lfs pull",
                     file.name());
  }
  if (file.size() < kPrefixBytes) {
    throw InputError("{}: {} bytes, a safetensors file has at least 10", file.name(), file.size());
  }
  if (bytes > kMostHeaderBytes) {
    throw InputError("{}: the header claims {} bytes, at most {} are allowed", file.name(), bytes,
                     kMostHeaderBytes);
  }
  if (bytes > file.size() - kPrefixBytes) {
    throw InputError("{}: the header claims {} bytes, but the file has {} (the file is truncated)",
                     file.name(), bytes, file.size());
  }
  std::string text(bytes, '\0');
  file.read_at(kPrefixBytes, text.data(), text.size());
  if (text.empty() || text[0] != '{') {
    throw InputError("{}: not a safetensors file: its header does not begin with {{", file.name());
  }
  return text;
}

std::string header_text(const std::vector<StoredTensor>& tensors) {
  // Written piece by piece: an ordered JSON object takes time quadratic in its members.
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::int64_t at = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::int64_t end = at + tensor.elements() * size_of(tensor.type);
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                        Json(tensor.name).dump(), to_string(tensor.type), Json(tensor.shape).dump(),
                        at, end);
    at = end;
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

/// Appends to a file and keeps its size and checksum.
class DigestingOutput {
 public:
  DigestingOutput(const fs::path& path, std::string shown_name)
      : name_(std::move(shown_name)), fd_(::open(path.c_str(), O_WRONLY | O_CLOEXEC)) {
    check(fd_ >= 0);
  }
  DigestingOutput(const DigestingOutput&) = delete;
  DigestingOutput& operator=(const DigestingOutput&) = delete;
  ~DigestingOutput() {
    if (fd_ >= 0) ::close(fd_);
  }
  void append(std::span<const std::byte> bytes) {
    digest_.crc32c = crc32c(bytes, digest_.crc32c);
    digest_.bytes += bytes.size();
    while (!bytes.empty()) {
      const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      check(count > 0);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  }
  FileDigest close() {
    check(::close(std::exchange(fd_, -1)) == 0);
    return digest_;
  }

 private:
  void check(bool good) const {
    if (!good) throw InputError("{}: cannot write: {}", name_, std::strerror(errno));
  }
  std::string name_;
  int fd_;
  FileDigest digest_;
};

template <typename T>
void append_tensor(DigestingOutput& out, const std::string& file, const StoredTensor& tensor,
                   const TensorSource<T>& source) {
  const auto size = static_cast<std::size_t>(size_of(tensor.type));
  const std::int64_t elements = tensor.elements();
  const auto most =
      static_cast<std::size_t>(std::min(elements, static_cast<std::int64_t>(kBlockBytes / size)));
  std::vector<T> values(most);
  std::vector<std::byte> bytes(most * size);
  for (std::int64_t first = 0; first < elements;) {
    const auto count =
        static_cast<std::size_t>(std::min(static_cast<std::int64_t>(most), elements - first));
    const std::span<T> block(values.data(), count);
    source(tensor, first, block);
    const std::span<std::byte> stored(bytes.data(), count * size);
    const std::size_t done = store<T>(tensor.type, block, stored);
    if (done < count) {
      throw InputError("{}: tensor '{}': element {} is {}, too large for {}", file, tensor.name,
                       first + static_cast<std::int64_t>(done), block[done],
                       to_string(tensor.type));
    }
    out.append(stored);
    first += static_cast<std::int64_t>(count);
  }
}

}  // namespace

std::int64_t StoredTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(path) {
  const std::string text = read_header_text(file_);
  const std::uint64_t data = kPrefixBytes + text.size();
  auto header = detail::parse_safetensors_header(text, file_.size() - data, file_.name());
  metadata_ = std::move(header.metadata);
  for (detail::HeaderEntry& entry : header.entries) {
    index_.emplace(entry.tensor.name, static_cast<std::int64_t>(tensors_.size()));
    offsets_.push_back(data + entry.begin);
    tensors_.push_back(std::move(entry.tensor));
  }
}

std::int64_t SafetensorsFile::find(const std::string& tensor) const {
  const auto found = index_.find(tensor);
  return found == index_.end() ? -1 : found->second;
}

template <typename T>
void SafetensorsFile::read(std::int64_t index, std::int64_t first, std::span<T> values) const {
  const StoredTensor& tensor = tensors_.at(static_cast<std::size_t>(index));
  if (!is_trainable(tensor.type)) {
    throw InputError("{}: tensor '{}' is stored as {}, expected F64, F32, F16 or BF16", name(),
                     tensor.name, to_string(tensor.type));
  }
  const auto count = static_cast<std::int64_t>(values.size());
  if (first < 0 || count > tensor.elements() || first > tensor.elements() - count) {
    throw std::logic_error(tensor.name + ": read outside the tensor");
  }
  const auto size = static_cast<std::size_t>(size_of(tensor.type));
  std::uint64_t offset =
      offsets_[static_cast<std::size_t>(index)] + static_cast<std::uint64_t>(first) * size;
  std::vector<std::byte> bytes(std::min(kBlockBytes, values.size() * size));
  while (!values.empty()) {
    const std::size_t block = std::min(values.size(), kBlockBytes / size);
    file_.read_at(offset, bytes.data(), block * size);
    load<T>(tensor.type, std::span(bytes).first(block * size), values.first(block));
    values = values.subspan(block);
    offset += block * size;
  }
}

template void SafetensorsFile::read(std::int64_t, std::int64_t, std::span<float>) const;
template void SafetensorsFile::read(std::int64_t, std::int64_t, std::span<double>) const;

SafetensorsFolder::SafetensorsFolder(const fs::path& folder) {
  std::error_code ec;
  const fs::path index = folder / "model.safetensors.index.json";
  if (!fs::exists(index, ec)) {
    const fs::path single = folder / "model.safetensors";
    if (!fs::exists(single, ec)) {
      throw InputError("{}: has neither model.safetensors nor model.safetensors.index.json",
                       folder.string());
    }
    files_.emplace_back(single);
    for (const StoredTensor& tensor : files_[0].tensors()) {
      tensors_.emplace(tensor.name, Place{0, files_[0].find(tensor.name)});
    }
    return;
  }
  std::map<std::string, std::size_t> opened;
  for (const auto& [tensor, file] :
       detail::parse_safetensors_index(read_text_file(index), index.string())) {
    if (file.empty() || fs::path(file).filename() != file || file == "." || file == "..") {
      throw InputError("{}: the file of '{}' is '{}', expected a name in the same folder",
                       index.string(), tensor, file);
    }
    const auto [at, added] = opened.emplace(file, files_.size());
    if (added) files_.emplace_back(folder / file);
    const std::int64_t place = files_[at->second].find(tensor);
    if (place < 0) {
      throw InputError("{}: tensor '{}' is not there, although {} says so",
                       files_[at->second].name(), tensor, index.filename().string());
    }
    tensors_.emplace(tensor, Place{at->second, place});
  }
  for (std::size_t i = 0; i < files_.size(); ++i) {
    for (const StoredTensor& tensor : files_[i].tensors()) {
      const auto place = tensors_.find(tensor.name);
      if (place == tensors_.end() || place->second.file != i) {
        throw InputError("{}: tensor '{}' is {} in {}", files_[i].name(), tensor.name,
                         place == tensors_.end() ? "not" : "said to be elsewhere",
                         index.filename().string());
      }
    }
  }
}

FileDigest digest_of(const fs::path& path) {
  const InputFile file(path);
  FileDigest digest{file.size(), 0};
  std::vector<std::byte> block(kBlockBytes);
  for (std::uint64_t at = 0; at < file.size(); at += kBlockBytes) {
    const auto bytes =
        static_cast<std::size_t>(std::min<std::uint64_t>(kBlockBytes, file.size() - at));
    file.read_at(at, block.data(), bytes);
    digest.crc32c = crc32c(std::span(block).first(bytes), digest.crc32c);
  }
  return digest;
}

template <typename T>
FileDigest write_safetensors(const fs::path& target, std::vector<StoredTensor> tensors,
                             const TensorSource<T>& source) {
  std::ranges::sort(tensors, [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(-size_of(a.type), std::string_view(a.name)) <
           std::pair(-size_of(b.type), std::string_view(b.name));
  });
  AtomicFile file(target);
  DigestingOutput out(file.temporary(), target.string());
  const std::string header = header_text(tensors);
  const std::uint64_t header_bytes = header.size();
  out.append(std::as_bytes(std::span(&header_bytes, 1)));
  out.append(std::as_bytes(std::span(header)));
  for (const StoredTensor& tensor : tensors) {
    append_tensor(out, target.string(), tensor, source);
  }
  const FileDigest digest = out.close();
  file.commit();
  return digest;
}

template FileDigest write_safetensors(const fs::path&, std::vector<StoredTensor>,
                                      const TensorSource<float>&);
template FileDigest write_safetensors(const fs::path&, std::vector<StoredTensor>,
                                      const TensorSource<double>&);

}  // namespace hydraulis
