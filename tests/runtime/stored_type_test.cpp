#include "runtime/stored_type.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"

namespace hydraulis {
namespace {

template <typename T>
std::uint16_t stored_short(StoredType type, T value) {
  std::uint16_t bits = 0;
  EXPECT_EQ(
      store<T>(type, std::span<const T>(&value, 1), std::as_writable_bytes(std::span(&bits, 1))),
      1u)
      << value;
  return bits;
}

float loaded_short(StoredType type, std::uint16_t bits) {
  float value = 0;
  load<float>(type, std::as_bytes(std::span(&bits, 1)), std::span(&value, 1));
  return value;
}

/// Value of a half or bfloat16 from its definition.
double value_of(std::uint16_t bits, int fraction_bits, int bias) {
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                    : std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
  return sign * magnitude;
}

struct Format {
  StoredType type;
  int fraction_bits;
  int bias;
};
constexpr std::array kShort = {Format{StoredType::f16, 10, 15}, Format{StoredType::bf16, 7, 127}};

TEST(StoredType, EveryShortNumberIsReadByItsDefinitionAndWrittenBack) {
  for (const auto& [type, fraction_bits, bias] : kShort) {
    const std::uint16_t infinity = type == StoredType::f16 ? 0x7c00 : 0x7f80;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const auto stored = static_cast<std::uint16_t>(bits);
      const float value = loaded_short(type, stored);
      if ((stored & 0x7fff) > infinity) {
        EXPECT_TRUE(std::isnan(value)) << bits;
        EXPECT_TRUE(std::isnan(loaded_short(type, stored_short(type, value))));
        continue;
      }
      if ((stored & 0x7fff) == infinity) {
        EXPECT_TRUE(std::isinf(value)) << bits;
      } else {
        ASSERT_EQ(static_cast<double>(value), value_of(stored, fraction_bits, bias)) << bits;
      }
      ASSERT_EQ(stored_short(type, value), stored) << value;
      ASSERT_EQ(stored_short(type, static_cast<double>(value)), stored) << value;
    }
  }
}

TEST(StoredType, RoundsToTheNearestAndTiesToEven) {
  Random random(5);
  for (const auto& [type, fraction_bits, bias] : kShort) {
    for (int i = 0; i < 20000; ++i) {
      // Between two neighbours: a little below, at, and a little above the middle.
      const auto low =
          static_cast<std::uint16_t>(random.below(type == StoredType::f16 ? 0x7bff : 0x7f7f));
      const auto high = static_cast<std::uint16_t>(low + 1);
      const double below = value_of(low, fraction_bits, bias);
      const double above = value_of(high, fraction_bits, bias);
      const double middle = below + (above - below) / 2;
      const double step = (above - below) * 1e-9;  // less than a float can tell
      const auto even = (low & 1) == 0 ? low : high;
      ASSERT_EQ(stored_short(type, middle), even) << middle;
      ASSERT_EQ(stored_short(type, middle - step), low) << middle;
      ASSERT_EQ(stored_short(type, middle + step), high) << middle;
      ASSERT_EQ(stored_short(type, -(middle + step)), high | 0x8000) << middle;
    }
  }
}

TEST(StoredType, StopsAtTheFirstNumberTooLarge) {
  const std::array<double, 4> values = {1, std::numeric_limits<double>::infinity(), 65519, 65520};
  std::array<std::byte, 8> bytes{};
  EXPECT_EQ(store<double>(StoredType::f16, values, bytes), 3u);
  const std::array<double, 1> large = {1e39};
  EXPECT_EQ(store<double>(StoredType::bf16, large, bytes), 0u);
  EXPECT_EQ(store<double>(StoredType::f32, large, bytes), 0u);
  EXPECT_EQ(store<double>(StoredType::f64, large, bytes), 1u);
}

TEST(StoredType, IsKnownByItsNames) {
  EXPECT_EQ(parse_training_type("bf16"), StoredType::bf16);
  EXPECT_EQ(parse_training_type("bfloat16"), StoredType::bf16);
  EXPECT_EQ(parse_training_type("F32"), StoredType::f32);
  EXPECT_THROW(parse_training_type("I64"), InputError);
  StoredType type = StoredType::f32;
  EXPECT_TRUE(parse_stored_type("F8_E4M3", type));
  EXPECT_EQ(size_of(type), 1);
  EXPECT_FALSE(parse_stored_type("F4", type));
}

}  // namespace
}  // namespace hydraulis
