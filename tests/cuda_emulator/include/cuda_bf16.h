#pragma once

// Stands in for CUDA's bfloat16: the upper half of a float, rounded to the nearest, ties to even.

#include <bit>
#include <cstdint>

#include "cuda_runtime.h"

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier): CUDA's names

struct __nv_bfloat16 {
  std::uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {0x7FFF};  // not a number, as the device gives it
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16)};
}
inline float __bfloat162float(__nv_bfloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
inline float2 __bfloat1622float2(__nv_bfloat162 pair) {
  return {__bfloat162float(pair.x), __bfloat162float(pair.y)};
}

// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)
