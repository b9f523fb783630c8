#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hydraulis {

/// Number formats of tensors in files (little-endian). Training reads and writes the first four;
/// the others only have names and sizes.
enum class StoredType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  i64,
  u64,
  i32,
  u32,
  i16,
  u16,
  i8,
  u8,
  boolean,
  f8_e5m2,
  f8_e4m3,
};

/// The name in a safetensors header: "F32", "BF16", …
const char* to_string(StoredType type);
/// The inverse; false if the name is not known.
bool parse_stored_type(std::string_view name, StoredType& type);
std::int64_t size_of(StoredType type);
constexpr bool is_trainable(StoredType type) { return type <= StoredType::bf16; }

/// What a type is called in a Hugging Face config.json: "float32", "bfloat16", …
const char* torch_name(StoredType type);
/// Of a training type by either name or the usual short ones (fp32, bf16, …). Throws InputError.
StoredType parse_training_type(const std::string& name);

/// Numbers in a file's format to T (float or double) and back, rounding to nearest even.
/// `bytes` holds values.size() numbers of a training type. load() throws std::logic_error for
/// another type.
template <typename T>
void load(StoredType type, std::span<const std::byte> bytes, std::span<T> values);
/// Returns the index of the first finite value that overflows the type (it is not stored and
/// neither is anything after it), or values.size().
template <typename T>
std::size_t store(StoredType type, std::span<const T> values, std::span<std::byte> bytes);

}  // namespace hydraulis
