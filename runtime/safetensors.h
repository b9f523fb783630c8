#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/atomic_file.h"
#include "base/input_file.h"
#include "runtime/stored_type.h"

namespace hydraulis {

/// A tensor of a safetensors file: row-major, little-endian. A scalar has no dimensions; any
/// dimension may be 0.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;
  std::int64_t elements() const;
};

/// A safetensors file, its header checked when it is opened: at most 100 MB of valid JSON without
/// repeated names, ranges that agree with shapes and types, cover the data without holes or
/// overlaps and end where the file ends. Throws InputError naming file and tensor. Numbers are read
/// at their place; the file is never loaded whole.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::string& name() const { return file_.name(); }
  /// In the order of their data.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Index in tensors(), or -1.
  std::int64_t find(const std::string& tensor) const;

  /// Elements from `first` on of a tensor, converted to T (float or double). InputError if its type
  /// is not a floating-point one that training reads; std::logic_error outside the tensor.
  template <typename T>
  void read(std::int64_t tensor, std::int64_t first, std::span<T> values) const;

 private:
  InputFile file_;
  std::vector<StoredTensor> tensors_;
  std::vector<std::uint64_t> offsets_;  ///< of each tensor's data in the file
  std::unordered_map<std::string, std::int64_t> index_;
  std::map<std::string, std::string> metadata_;
};

/// Tensors spread over the files of `model.safetensors.index.json`, or of one file.
class SafetensorsFolder {
 public:
  /// The folder's model.safetensors, or the files that model.safetensors.index.json names. Throws
  /// InputError: neither there, a file missing, outside the folder, or without a tensor that the
  /// index says it has, a tensor that the index leaves out.
  explicit SafetensorsFolder(const std::filesystem::path& folder);

  struct Place {
    std::size_t file;     ///< index in files()
    std::int64_t tensor;  ///< index in its tensors()
  };
  const std::vector<SafetensorsFile>& files() const { return files_; }
  /// All tensors by name.
  const std::map<std::string, Place>& tensors() const { return tensors_; }

 private:
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place> tensors_;
};

/// What was written: to be checked when it is read again.
struct FileDigest {
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
};
/// Of a file as it stands. Throws InputError.
FileDigest digest_of(const std::filesystem::path& path);

/// Hands out elements from `first` on of a tensor.
template <typename T>
using TensorSource =
    std::function<void(const StoredTensor& tensor, std::int64_t first, std::span<T> values)>;

/// Writes a safetensors file from front to back and atomically, with the metadata Hugging Face's
/// loaders ask for ("format": "pt"): header padded to 8 bytes, tensors by falling size of their
/// type, then by name. `source` is asked for each tensor's elements in ascending pieces of at most
/// a few hundred thousand. Throws InputError on a failed write, and for a finite number too large
/// for its type (naming tensor and number).
template <typename T>
FileDigest write_safetensors(const std::filesystem::path& target, std::vector<StoredTensor> tensors,
                             const TensorSource<T>& source);

}  // namespace hydraulis
