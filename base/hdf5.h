#pragma once

#include <hdf5.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hydraulis {

/// An HDF5 identifier closed when it goes out of scope.
class Hdf5Handle {
 public:
  using Closer = herr_t (*)(hid_t);
  Hdf5Handle() = default;
  Hdf5Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept;
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept;
  ~Hdf5Handle();
  hid_t get() const { return id_; }
  bool valid() const { return id_ >= 0; }

 private:
  void close();
  hid_t id_ = -1;
  Closer closer_ = nullptr;
};

/// An open HDF5 file with the few operations the project's schemas need. Objects are named by path
/// from the root ("/schemes/a"); attributes live on an object ("/" for the file). Every failure is
/// an InputError naming the file and the object. Element types: std::uint32_t, std::uint64_t,
/// std::int64_t, double. All data is stored little-endian, chunked and deflate-compressed.
/// Not thread-safe (Debian's HDF5 library is not).
class Hdf5File {
 public:
  /// Opens an existing file for reading; a file that is not HDF5, or is truncated, is refused.
  static Hdf5File open(const std::filesystem::path& path);
  /// Creates a file (normally AtomicFile::temporary()); `shown_name` is used in messages.
  static Hdf5File create(const std::filesystem::path& path, const std::string& shown_name);

  bool exists(const std::string& object) const;
  void create_group(const std::string& group);
  /// Names of the direct members of a group, sorted.
  std::vector<std::string> members(const std::string& group) const;

  void set_attribute(const std::string& object, const std::string& name, const std::string& value);
  void set_attribute(const std::string& object, const std::string& name, double value);
  void set_attribute(const std::string& object, const std::string& name, std::int64_t value);
  std::string text_attribute(const std::string& object, const std::string& name) const;
  double number_attribute(const std::string& object, const std::string& name) const;
  std::int64_t integer_attribute(const std::string& object, const std::string& name) const;
  bool has_attribute(const std::string& object, const std::string& name) const;

  /// Creates an empty one-dimensional dataset that append() extends.
  template <typename T>
  void create_dataset(const std::string& dataset);
  template <typename T>
  void append(const std::string& dataset, std::span<const T> values);
  template <typename T>
  void write(const std::string& dataset, std::span<const T> values) {
    create_dataset<T>(dataset);
    append<T>(dataset, values);
  }
  /// Number of elements of a one-dimensional dataset; refuses any other shape.
  std::uint64_t size(const std::string& dataset) const;
  /// Reads [begin, begin + count); the file's integer type must not be wider than T's.
  template <typename T>
  std::vector<T> read(const std::string& dataset, std::uint64_t begin, std::uint64_t count) const;
  template <typename T>
  std::vector<T> read(const std::string& dataset) const {
    return read<T>(dataset, 0, size(dataset));
  }
  /// UTF-8 strings, stored at the length of the longest; variable-length ones are read too.
  void write_texts(const std::string& dataset, const std::vector<std::string>& values);
  std::vector<std::string> read_texts(const std::string& dataset) const;

  /// Flushes and closes; further calls are errors. Reports what the destructor could not.
  void close();

 private:
  Hdf5File(Hdf5Handle file, std::string name);
  Hdf5Handle open_dataset(const std::string& dataset) const;
  Hdf5Handle open_attribute(const std::string& object, const std::string& name) const;
  void write_attribute(const std::string& object, const std::string& name, hid_t type,
                       const void* value);
  Hdf5Handle file_;
  std::string name_;
};

}  // namespace hydraulis
