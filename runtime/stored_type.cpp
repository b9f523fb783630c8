#include "runtime/stored_type.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "base/error.h"

namespace hydraulis {
namespace {

struct TypeInfo {
  StoredType type;
  const char* name;
  const char* torch;
  std::int64_t bytes;
};

constexpr std::array kTypes = {
    TypeInfo{StoredType::f64, "F64", "float64", 8},
    TypeInfo{StoredType::f32, "F32", "float32", 4},
    TypeInfo{StoredType::f16, "F16", "float16", 2},
    TypeInfo{StoredType::bf16, "BF16", "bfloat16", 2},
    TypeInfo{StoredType::i64, "I64", "int64", 8},
    TypeInfo{StoredType::u64, "U64", "uint64", 8},
    TypeInfo{StoredType::i32, "I32", "int32", 4},
    TypeInfo{StoredType::u32, "U32", "uint32", 4},
    TypeInfo{StoredType::i16, "I16", "int16", 2},
    TypeInfo{StoredType::u16, "U16", "uint16", 2},
    TypeInfo{StoredType::i8, "I8", "int8", 1},
    TypeInfo{StoredType::u8, "U8", "uint8", 1},
    TypeInfo{StoredType::boolean, "BOOL", "bool", 1},
    TypeInfo{StoredType::f8_e5m2, "F8_E5M2", "float8_e5m2", 1},
    TypeInfo{StoredType::f8_e4m3, "F8_E4M3", "float8_e4m3fn", 1},
};

const TypeInfo& info(StoredType type) { return kTypes[static_cast<std::size_t>(type)]; }

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half} >> 15 << 31;
  const std::uint32_t exponent = (half >> 10) & 0x1f;
  const std::uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {  // zero and subnormal: fraction · 2⁻²⁴
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 31 << 15);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000u) {  // NaN: quiet, with the upper part of its payload
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 2¹⁶ and more, infinity
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2⁻¹⁴: a multiple of 2⁻²⁴, rounded by the addition
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
  } else {
    const std::uint32_t odd = (magnitude >> 13) & 1;
    half = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

std::uint16_t float_to_bfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

/// A float for rounding further to a shorter type: inexact values get an odd last bit, so that the
/// second rounding decides as if it were the only one.
float to_odd_float(float value) { return value; }
float to_odd_float(double value) {
  const auto rounded = static_cast<float>(value);
  if (!std::isfinite(rounded) || static_cast<double>(rounded) == value) return rounded;
  auto bits = std::bit_cast<std::uint32_t>(rounded);
  if (std::fabs(static_cast<double>(rounded)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

template <typename Stored, typename T, typename Convert>
void load_each(std::span<const std::byte> bytes, std::span<T> values, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored stored{};
    std::memcpy(&stored, bytes.data() + i * sizeof stored, sizeof stored);
    values[i] = static_cast<T>(convert(stored));
  }
}

template <typename T, typename Convert, typename Finite>
std::size_t store_each(std::span<const T> values, std::span<std::byte> bytes, Convert convert,
                       Finite finite) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto stored = convert(values[i]);
    if (!finite(stored) && std::isfinite(values[i])) return i;
    std::memcpy(bytes.data() + i * sizeof stored, &stored, sizeof stored);
  }
  return values.size();
}

}  // namespace

const char* to_string(StoredType type) { return info(type).name; }
std::int64_t size_of(StoredType type) { return info(type).bytes; }
const char* torch_name(StoredType type) { return info(type).torch; }

bool parse_stored_type(std::string_view name, StoredType& type) {
  const auto* found = std::ranges::find_if(kTypes, [&](const auto& t) { return name == t.name; });
  if (found == kTypes.end()) return false;
  type = found->type;
  return true;
}

StoredType parse_training_type(const std::string& name) {
  if (name == "fp64" || name == "f64") return StoredType::f64;
  if (name == "fp32" || name == "f32") return StoredType::f32;
  if (name == "fp16" || name == "f16") return StoredType::f16;
  if (name == "bf16") return StoredType::bf16;
  for (const TypeInfo& known : kTypes) {
    if (is_trainable(known.type) && (name == known.name || name == known.torch)) return known.type;
  }
  throw InputError("number format '{}' is not known, expected fp64, fp32, fp16 or bf16", name);
}

template <typename T>
void load(StoredType type, std::span<const std::byte> bytes, std::span<T> values) {
  switch (type) {
    case StoredType::f64:
      return load_each<double>(bytes, values, [](double x) { return x; });
    case StoredType::f32:
      return load_each<float>(bytes, values, [](float x) { return x; });
    case StoredType::f16:
      return load_each<std::uint16_t>(bytes, values, half_to_float);
    case StoredType::bf16:
      return load_each<std::uint16_t>(bytes, values, [](std::uint16_t x) {
        return std::bit_cast<float>(std::uint32_t{x} << 16);
      });
    default:
      throw std::logic_error(std::string("reading numbers stored as ") + to_string(type));
  }
}

template <typename T>
std::size_t store(StoredType type, std::span<const T> values, std::span<std::byte> bytes) {
  switch (type) {
    case StoredType::f64:
      return store_each(
          values, bytes, [](T x) { return static_cast<double>(x); },
          [](double x) { return std::isfinite(x); });
    case StoredType::f32:
      return store_each(
          values, bytes, [](T x) { return static_cast<float>(x); },
          [](float x) { return std::isfinite(x); });
    case StoredType::f16:
      return store_each(
          values, bytes, [](T x) { return float_to_half(to_odd_float(x)); },
          [](std::uint16_t x) { return (x & 0x7c00) != 0x7c00; });
    case StoredType::bf16:
      return store_each(
          values, bytes, [](T x) { return float_to_bfloat(to_odd_float(x)); },
          [](std::uint16_t x) { return (x & 0x7f80) != 0x7f80; });
    default:
      throw std::logic_error(std::string("writing numbers as ") + to_string(type));
  }
}

template void load(StoredType, std::span<const std::byte>, std::span<float>);
template void load(StoredType, std::span<const std::byte>, std::span<double>);
template std::size_t store(StoredType, std::span<const float>, std::span<std::byte>);
template std::size_t store(StoredType, std::span<const double>, std::span<std::byte>);

}  // namespace hydraulis
