#include "base/hdf5.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr hsize_t kChunkElements = 65536;
constexpr unsigned kDeflateLevel = 4;

template <typename T>
hid_t memory_type();
template <>
hid_t memory_type<std::uint32_t>() {
  return H5T_NATIVE_UINT32;
}
template <>
hid_t memory_type<std::uint64_t>() {
  return H5T_NATIVE_UINT64;
}
template <>
hid_t memory_type<std::int64_t>() {
  return H5T_NATIVE_INT64;
}
template <>
hid_t memory_type<double>() {
  return H5T_NATIVE_DOUBLE;
}

template <typename T>
hid_t file_type();
template <>
hid_t file_type<std::uint32_t>() {
  return H5T_STD_U32LE;
}
template <>
hid_t file_type<std::uint64_t>() {
  return H5T_STD_U64LE;
}
template <>
hid_t file_type<std::int64_t>() {
  return H5T_STD_I64LE;
}
template <>
hid_t file_type<double>() {
  return H5T_IEEE_F64LE;
}

/// UTF-8 text of a fixed number of bytes, filled up with zeros. Text of variable length would live
/// in the file's global heap, which has no checksum: one damaged byte there can keep the library in
/// an endless loop.
Hdf5Handle fixed_text_type(std::size_t bytes) {
  Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), std::max<std::size_t>(bytes, 1));
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

/// Variable-length text in memory, for files that other programs wrote.
Hdf5Handle variable_text_type() {
  Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

/// The library prints its error stack by default; our messages replace it.
void silence_library() {
  static const bool once = [] {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    return true;
  }();
  (void)once;
}

/// Creation properties without the times that the library would write into every object: the same
/// content gives the same bytes.
Hdf5Handle timeless(hid_t object_class) {
  Hdf5Handle options(H5Pcreate(object_class), H5Pclose);
  H5Pset_obj_track_times(options.get(), false);
  return options;
}

}  // namespace

Hdf5Handle::Hdf5Handle(Hdf5Handle&& other) noexcept
    : id_(std::exchange(other.id_, -1)), closer_(other.closer_) {}

Hdf5Handle& Hdf5Handle::operator=(Hdf5Handle&& other) noexcept {
  if (this != &other) {
    close();
    id_ = std::exchange(other.id_, -1);
    closer_ = other.closer_;
  }
  return *this;
}

Hdf5Handle::~Hdf5Handle() { close(); }

void Hdf5Handle::close() {
  if (id_ >= 0 && closer_ != nullptr) closer_(id_);
  id_ = -1;
}

Hdf5File::Hdf5File(Hdf5Handle file, std::string name)
    : file_(std::move(file)), name_(std::move(name)) {}

Hdf5File Hdf5File::open(const std::filesystem::path& path) {
  silence_library();
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) throw InputError("{}: no such file", path.string());
  if (std::filesystem::is_directory(path, ec)) {
    throw InputError("{}: is a folder, expected an HDF5 file", path.string());
  }
  if (H5Fis_hdf5(path.c_str()) <= 0) throw InputError("{}: not an HDF5 file", path.string());
  Hdf5Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (!file.valid()) {
    throw InputError("{}: cannot open: the HDF5 file is truncated or damaged", path.string());
  }
  return {std::move(file), path.string()};
}

Hdf5File Hdf5File::create(const std::filesystem::path& path, const std::string& shown_name) {
  silence_library();
  // This format version checksums the file's own structures; the library can spin on a damaged
  // file of the older one.
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  const Hdf5Handle options = timeless(H5P_FILE_CREATE);
  Hdf5Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, options.get(), access.get()), H5Fclose);
  if (!file.valid()) throw InputError("{}: cannot create the HDF5 file", shown_name);
  return {std::move(file), shown_name};
}

bool Hdf5File::exists(const std::string& object) const {
  if (object == "/") return true;
  // H5Lexists needs every parent to exist.
  for (std::size_t at = object.find('/', 1);; at = object.find('/', at + 1)) {
    const std::string prefix = object.substr(0, at);
    if (H5Lexists(file_.get(), prefix.c_str(), H5P_DEFAULT) <= 0) return false;
    if (at == std::string::npos) return true;
  }
}

void Hdf5File::create_group(const std::string& group) {
  const Hdf5Handle options = timeless(H5P_GROUP_CREATE);
  Hdf5Handle handle(H5Gcreate2(file_.get(), group.c_str(), H5P_DEFAULT, options.get(), H5P_DEFAULT),
                    H5Gclose);
  if (!handle.valid()) throw InputError("{}: cannot create group {}", name_, group);
}

std::vector<std::string> Hdf5File::members(const std::string& group) const {
  std::vector<std::string> names;
  if (!exists(group)) return names;
  const auto collect = [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  Hdf5Handle handle(H5Gopen2(file_.get(), group.c_str(), H5P_DEFAULT), H5Gclose);
  if (!handle.valid() ||
      H5Literate(handle.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, collect, &names) < 0) {
    throw InputError("{}: cannot list group {}", name_, group);
  }
  return names;
}

void Hdf5File::write_attribute(const std::string& object, const std::string& name, hid_t type,
                               const void* value) {
  Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  Hdf5Handle target(H5Oopen(file_.get(), object.c_str(), H5P_DEFAULT), H5Oclose);
  Hdf5Handle attribute(
      H5Acreate2(target.get(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose);
  if (!attribute.valid() || H5Awrite(attribute.get(), type, value) < 0) {
    throw InputError("{}: cannot write attribute '{}' of {}", name_, name, object);
  }
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name,
                             const std::string& value) {
  write_attribute(object, name, fixed_text_type(value.size()).get(), value.c_str());
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name, double value) {
  write_attribute(object, name, H5T_NATIVE_DOUBLE, &value);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name,
                             std::int64_t value) {
  write_attribute(object, name, H5T_NATIVE_INT64, &value);
}

bool Hdf5File::has_attribute(const std::string& object, const std::string& name) const {
  return exists(object) &&
         H5Aexists_by_name(file_.get(), object.c_str(), name.c_str(), H5P_DEFAULT) > 0;
}

Hdf5Handle Hdf5File::open_attribute(const std::string& object, const std::string& name) const {
  if (!has_attribute(object, name)) {
    throw InputError("{}: attribute '{}' of {} is missing", name_, name, object);
  }
  Hdf5Handle attribute(
      H5Aopen_by_name(file_.get(), object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose);
  Hdf5Handle space(H5Aget_space(attribute.get()), H5Sclose);
  if (H5Sget_simple_extent_npoints(space.get()) != 1) {
    throw InputError("{}: attribute '{}' of {} is not a single value", name_, name, object);
  }
  return attribute;
}

std::string Hdf5File::text_attribute(const std::string& object, const std::string& name) const {
  const Hdf5Handle attribute = open_attribute(object, name);
  const Hdf5Handle type(H5Aget_type(attribute.get()), H5Tclose);
  if (H5Tget_class(type.get()) != H5T_STRING) {
    throw InputError("{}: attribute '{}' of {} is not text", name_, name, object);
  }
  if (H5Tis_variable_str(type.get()) > 0) {
    char* text = nullptr;
    const Hdf5Handle memory(H5Tcopy(type.get()), H5Tclose);
    if (H5Aread(attribute.get(), memory.get(), &text) < 0 || text == nullptr) {
      throw InputError("{}: attribute '{}' of {} cannot be read", name_, name, object);
    }
    std::string result(text);
    H5free_memory(text);
    return result;
  }
  constexpr std::size_t kLongestText = 1u << 16;  // HDF5's own limit for compact attributes
  const std::size_t size = H5Tget_size(type.get());
  if (size > kLongestText) {
    throw InputError("{}: attribute '{}' of {} claims {} bytes", name_, name, object, size);
  }
  std::string result(size, '\0');
  if (H5Aread(attribute.get(), type.get(), result.data()) < 0) {
    throw InputError("{}: attribute '{}' of {} cannot be read", name_, name, object);
  }
  result.resize(std::min(result.find('\0'), result.size()));
  return result;
}

double Hdf5File::number_attribute(const std::string& object, const std::string& name) const {
  double value = 0;
  if (H5Aread(open_attribute(object, name).get(), H5T_NATIVE_DOUBLE, &value) < 0) {
    throw InputError("{}: attribute '{}' of {} is not a number", name_, name, object);
  }
  return value;
}

std::int64_t Hdf5File::integer_attribute(const std::string& object, const std::string& name) const {
  const Hdf5Handle attribute = open_attribute(object, name);
  const Hdf5Handle type(H5Aget_type(attribute.get()), H5Tclose);
  std::int64_t value = 0;
  if (H5Tget_class(type.get()) != H5T_INTEGER ||
      H5Aread(attribute.get(), H5T_NATIVE_INT64, &value) < 0) {
    throw InputError("{}: attribute '{}' of {} is not an integer", name_, name, object);
  }
  return value;
}

template <typename T>
void Hdf5File::create_dataset(const std::string& dataset) {
  const hsize_t none = 0;
  const hsize_t unlimited = H5S_UNLIMITED;
  Hdf5Handle space(H5Screate_simple(1, &none, &unlimited), H5Sclose);
  const Hdf5Handle options = timeless(H5P_DATASET_CREATE);
  H5Pset_chunk(options.get(), 1, &kChunkElements);
  H5Pset_shuffle(options.get());
  H5Pset_deflate(options.get(), kDeflateLevel);
  H5Pset_fletcher32(options.get());
  Hdf5Handle handle(H5Dcreate2(file_.get(), dataset.c_str(), file_type<T>(), space.get(),
                               H5P_DEFAULT, options.get(), H5P_DEFAULT),
                    H5Dclose);
  if (!handle.valid()) throw InputError("{}: cannot create dataset {}", name_, dataset);
}

Hdf5Handle Hdf5File::open_dataset(const std::string& dataset) const {
  if (!exists(dataset)) throw InputError("{}: dataset {} is missing", name_, dataset);
  Hdf5Handle handle(H5Dopen2(file_.get(), dataset.c_str(), H5P_DEFAULT), H5Dclose);
  if (!handle.valid()) throw InputError("{}: {} is not a dataset", name_, dataset);
  return handle;
}

template <typename T>
void Hdf5File::append(const std::string& dataset, std::span<const T> values) {
  if (values.empty()) return;
  const Hdf5Handle handle = open_dataset(dataset);
  const hsize_t begin = size(dataset);
  const hsize_t count = values.size();
  const hsize_t total = begin + count;
  herr_t status = H5Dset_extent(handle.get(), &total);
  Hdf5Handle space(H5Dget_space(handle.get()), H5Sclose);
  Hdf5Handle memory(H5Screate_simple(1, &count, nullptr), H5Sclose);
  if (status >= 0) {
    status = H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, &begin, nullptr, &count, nullptr);
  }
  if (status >= 0) {
    status = H5Dwrite(handle.get(), memory_type<T>(), memory.get(), space.get(), H5P_DEFAULT,
                      values.data());
  }
  if (status < 0) throw InputError("{}: cannot write dataset {}", name_, dataset);
}

std::uint64_t Hdf5File::size(const std::string& dataset) const {
  const Hdf5Handle handle = open_dataset(dataset);
  const Hdf5Handle space(H5Dget_space(handle.get()), H5Sclose);
  if (H5Sget_simple_extent_ndims(space.get()) != 1) {
    throw InputError("{}: dataset {} is not one-dimensional", name_, dataset);
  }
  hsize_t count = 0;
  H5Sget_simple_extent_dims(space.get(), &count, nullptr);
  return count;
}

template <typename T>
std::vector<T> Hdf5File::read(const std::string& dataset, std::uint64_t begin,
                              std::uint64_t count) const {
  const Hdf5Handle handle = open_dataset(dataset);
  const Hdf5Handle type(H5Dget_type(handle.get()), H5Tclose);
  const bool want_float = std::is_floating_point_v<T>;
  const H5T_class_t kind = H5Tget_class(type.get());
  if (kind != H5T_INTEGER && !(want_float && kind == H5T_FLOAT)) {
    throw InputError("{}: dataset {} has the wrong element type", name_, dataset);
  }
  if (!want_float && H5Tget_size(type.get()) > sizeof(T)) {
    throw InputError("{}: dataset {} has elements of {} bytes, expected at most {}", name_, dataset,
                     H5Tget_size(type.get()), sizeof(T));
  }
  const std::uint64_t total = size(dataset);
  if (begin > total || count > total - begin) {
    throw InputError("{}: dataset {} has {} elements, asked for {} from {}", name_, dataset, total,
                     count, begin);
  }
  // A hostile header can claim any size: what deflate cannot possibly hold is refused unallocated.
  constexpr std::uint64_t kBestDeflateRatio = 1100;
  const std::uint64_t stored = H5Dget_storage_size(handle.get());
  if (total > (1u << 20) && total * sizeof(T) / kBestDeflateRatio > stored) {
    throw InputError("{}: dataset {} claims {} elements but stores {} bytes", name_, dataset, total,
                     stored);
  }
  std::vector<T> values(count);
  if (count == 0) return values;
  const hsize_t start = begin;
  const hsize_t length = count;
  Hdf5Handle space(H5Dget_space(handle.get()), H5Sclose);
  Hdf5Handle memory(H5Screate_simple(1, &length, nullptr), H5Sclose);
  H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, &start, nullptr, &length, nullptr);
  if (H5Dread(handle.get(), memory_type<T>(), memory.get(), space.get(), H5P_DEFAULT,
              values.data()) < 0) {
    throw InputError("{}: dataset {} cannot be read: the file is damaged", name_, dataset);
  }
  return values;
}

void Hdf5File::write_texts(const std::string& dataset, const std::vector<std::string>& values) {
  const hsize_t count = values.size();
  std::size_t longest = 1;
  for (const auto& value : values) longest = std::max(longest, value.size());
  std::string cells(values.size() * longest, '\0');
  for (std::size_t i = 0; i < values.size(); ++i) values[i].copy(&cells[i * longest], longest);
  const Hdf5Handle type = fixed_text_type(longest);
  Hdf5Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  const Hdf5Handle options = timeless(H5P_DATASET_CREATE);
  Hdf5Handle handle(H5Dcreate2(file_.get(), dataset.c_str(), type.get(), space.get(), H5P_DEFAULT,
                               options.get(), H5P_DEFAULT),
                    H5Dclose);
  if (!handle.valid() || (count > 0 && H5Dwrite(handle.get(), type.get(), H5S_ALL, H5S_ALL,
                                                H5P_DEFAULT, cells.data()) < 0)) {
    throw InputError("{}: cannot write dataset {}", name_, dataset);
  }
}

std::vector<std::string> Hdf5File::read_texts(const std::string& dataset) const {
  const Hdf5Handle handle = open_dataset(dataset);
  const std::uint64_t count = size(dataset);
  const Hdf5Handle stored(H5Dget_type(handle.get()), H5Tclose);
  constexpr std::uint64_t kMostTexts = 1u << 24;
  constexpr std::uint64_t kMostBytes = 1u << 28;
  if (H5Tget_class(stored.get()) != H5T_STRING || count > kMostTexts) {
    throw InputError("{}: dataset {} does not hold texts", name_, dataset);
  }
  std::vector<std::string> values;
  if (count == 0) return values;
  const auto read_into = [&](const Hdf5Handle& type, void* target) {
    if (H5Dread(handle.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, target) < 0) {
      throw InputError("{}: dataset {} cannot be read: the file is damaged", name_, dataset);
    }
  };
  values.reserve(count);
  if (H5Tis_variable_str(stored.get()) > 0) {
    std::vector<char*> pointers(count, nullptr);
    const Hdf5Handle type = variable_text_type();
    read_into(type, pointers.data());
    for (char* pointer : pointers) values.emplace_back(pointer == nullptr ? "" : pointer);
    const Hdf5Handle space(H5Dget_space(handle.get()), H5Sclose);
    H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, pointers.data());
    return values;
  }
  const std::size_t longest = H5Tget_size(stored.get());
  if (longest > kMostBytes / count) {
    throw InputError("{}: dataset {} claims {} texts of {} bytes", name_, dataset, count, longest);
  }
  std::string cells(count * longest, '\0');
  read_into(stored, cells.data());
  for (std::size_t i = 0; i < count; ++i) {
    const std::string cell = cells.substr(i * longest, longest);
    values.push_back(cell.substr(0, cell.find('\0')));
  }
  return values;
}

void Hdf5File::close() {
  if (H5Fflush(file_.get(), H5F_SCOPE_GLOBAL) < 0) {
    throw InputError("{}: cannot write: no space left or the disk failed", name_);
  }
  file_ = Hdf5Handle();
}

#define HYDRAULIS_HDF5_ELEMENT(T)                                            \
  template void Hdf5File::create_dataset<T>(const std::string&);             \
  template void Hdf5File::append<T>(const std::string&, std::span<const T>); \
  template std::vector<T> Hdf5File::read<T>(const std::string&, std::uint64_t, std::uint64_t) const;
HYDRAULIS_HDF5_ELEMENT(std::uint32_t)
HYDRAULIS_HDF5_ELEMENT(std::uint64_t)
HYDRAULIS_HDF5_ELEMENT(std::int64_t)
HYDRAULIS_HDF5_ELEMENT(double)
#undef HYDRAULIS_HDF5_ELEMENT

}  // namespace hydraulis
