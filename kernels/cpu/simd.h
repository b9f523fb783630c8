#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

namespace hydraulis::cpu {

// The widest vectors of the machine the kernels are compiled for.
#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
inline constexpr int kVectorRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
inline constexpr int kVectorRegisters = 16;
#else
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorRegisters = 16;
#endif

template <typename T>
struct SimdTypes;
template <>
struct SimdTypes<float> {
  using Vector __attribute__((vector_size(kVectorBytes))) = float;
  using Bits __attribute__((vector_size(kVectorBytes))) = std::int32_t;
  using Unaligned __attribute__((vector_size(kVectorBytes), aligned(4), may_alias)) = float;
};
template <>
struct SimdTypes<double> {
  using Vector __attribute__((vector_size(kVectorBytes))) = double;
  using Bits __attribute__((vector_size(kVectorBytes))) = std::int64_t;
  using Unaligned __attribute__((vector_size(kVectorBytes), aligned(8), may_alias)) = double;
};

template <typename T>
using Vector = typename SimdTypes<T>::Vector;
template <typename T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

#define HYDRAULIS_INLINE inline __attribute__((always_inline))

/// How much of a vector a load or store touches: all lanes, or the first few at the end of a row.
struct AllLanes {};
struct FirstLanes {
  int count;
};

template <typename T>
HYDRAULIS_INLINE Vector<T> broadcast(T x) {
  return x - Vector<T>{};
}
template <typename T>
HYDRAULIS_INLINE Vector<T> load(const T* from, AllLanes = {}) {
  return *reinterpret_cast<const typename SimdTypes<T>::Unaligned*>(from);
}
template <typename T>
HYDRAULIS_INLINE Vector<T> load(const T* from, FirstLanes lanes) {
  Vector<T> x{};
  std::memcpy(&x, from, static_cast<std::size_t>(lanes.count) * sizeof(T));
  return x;
}
template <typename T>
HYDRAULIS_INLINE void store(T* to, Vector<T> x, AllLanes = {}) {
  *reinterpret_cast<typename SimdTypes<T>::Unaligned*>(to) = x;
}
template <typename T>
HYDRAULIS_INLINE void store(T* to, Vector<T> x, FirstLanes lanes) {
  std::memcpy(to, &x, static_cast<std::size_t>(lanes.count) * sizeof(T));
}

/// body(i, lanes) for vectors at i = 0, kLanes … and the rest of a row of n elements.
template <typename T, typename Body>
HYDRAULIS_INLINE void for_each_vector(std::int64_t n, Body body) {
  std::int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) body(i, AllLanes{});
  if (i < n) body(i, FirstLanes{static_cast<int>(n - i)});
}

/// Transposes a square of as many vectors as a vector has lanes: log2(lanes) rounds, each of which
/// exchanges blocks of 1, 2, 4 … lanes between vectors that far apart.
template <typename T>
HYDRAULIS_INLINE void transpose(Vector<T> (&rows)[kLanes<T>]) {
  constexpr int n = kLanes<T>;
  using Bits = typename SimdTypes<T>::Bits;
#pragma GCC unroll 4
  for (int block = 1; block < n; block *= 2) {
    Bits upper{};
    Bits lower{};
#pragma GCC unroll 16
    for (int j = 0; j < n; ++j) {
      upper[j] = (j & block) != 0 ? n + j - block : j;
      lower[j] = (j & block) != 0 ? n + j : j + block;
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) {
      if ((i & block) != 0) continue;
      const Vector<T> a = rows[i];
      const Vector<T> b = rows[i + block];
      rows[i] = __builtin_shuffle(a, b, upper);
      rows[i + block] = __builtin_shuffle(a, b, lower);
    }
  }
}

/// to[j·to_stride + i] = factor·from[i·from_stride + j] for i < count ≤ lanes and j < columns,
/// zeros for i in [count, width); width ≤ lanes.
template <typename T>
HYDRAULIS_INLINE void transpose_strip(const T* from, std::int64_t from_stride, int count,
                                      std::int64_t columns, T factor, T* to, std::int64_t to_stride,
                                      int width) {
  constexpr int n = kLanes<T>;
  for_each_vector<T>(columns, [&](std::int64_t j, auto lanes) {
    Vector<T> rows[n];
    if (count == n) {
#pragma GCC unroll 16
      for (int i = 0; i < n; ++i) rows[i] = factor * load(from + i * from_stride + j, lanes);
    } else {
#pragma GCC unroll 16
      for (int i = 0; i < n; ++i) {
        rows[i] = i < count ? factor * load(from + i * from_stride + j, lanes) : Vector<T>{};
      }
    }
    transpose<T>(rows);
    const auto columns_here = static_cast<int>(columns - j < n ? columns - j : n);
    if (width == n && columns_here == n) {
#pragma GCC unroll 16
      for (int i = 0; i < n; ++i) store(to + (j + i) * to_stride, rows[i]);
    } else {
#pragma GCC unroll 16
      for (int i = 0; i < n; ++i) {
        if (i < columns_here) store(to + (j + i) * to_stride, rows[i], FirstLanes{width});
      }
    }
  });
}

template <typename V>
HYDRAULIS_INLINE V greater(V a, V b) {
  return a > b ? a : b;
}

/// Sum of the lanes by halves.
template <typename T>
HYDRAULIS_INLINE T sum_of_lanes(Vector<T> x) {
  T lanes[kLanes<T>];
  std::memcpy(lanes, &x, sizeof(x));
  for (int half = kLanes<T> / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}
template <typename T>
HYDRAULIS_INLINE T max_of_lanes(Vector<T> x) {
  T most = x[0];
  for (int i = 1; i < kLanes<T>; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

template <typename T>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr int degree = 7;
  static constexpr float lowest = -87.33F;  // below, the result is less than the smallest normal
  static constexpr float highest = 88.37F;  // above, 2^n would overflow
  static constexpr float rounder = 12582912.0F;  // 1.5·2^23: adding it rounds to an integer
  static constexpr float ln2_high = 0.693359375F;
  static constexpr float ln2_low = -2.12194440e-4F;
  static constexpr int exponent_bias = 127;
  static constexpr int mantissa_bits = 23;
};
template <>
struct ExpConstants<double> {
  static constexpr int degree = 13;
  static constexpr double lowest = -708.39;
  static constexpr double highest = 709.43;
  static constexpr double rounder = 6755399441055744.0;  // 1.5·2^52
  static constexpr double ln2_high = 6.93147180369123816490e-01;
  static constexpr double ln2_low = 1.90821492927058770002e-10;
  static constexpr int exponent_bias = 1023;
  static constexpr int mantissa_bits = 52;
};

/// e^x to about 2 ulp: x = n·ln 2 + r, the Taylor series of e^r times 2^n. Results below the
/// smallest normal number are 0, −∞ gives 0, what would overflow ∞, NaN stays.
template <typename T>
HYDRAULIS_INLINE Vector<T> exp(Vector<T> x) {
  using C = ExpConstants<T>;
  using Bits = typename SimdTypes<T>::Bits;
  constexpr T log2_e = T(1.44269504088896340736);
  constexpr int degree = C::degree;
  const Vector<T> low = broadcast(C::lowest);
  const Vector<T> high = broadcast(C::highest);
  const Vector<T> bounded = x < low ? low : x;
  const Vector<T> shifted = bounded * log2_e + C::rounder;
  const Vector<T> n = shifted - C::rounder;
  const Vector<T> r = (bounded - n * C::ln2_high) - n * C::ln2_low;
  struct Coefficients {
    T value[degree + 1];
    constexpr Coefficients() : value() {
      double inverse_factorial = 1;
      for (int k = 0; k <= degree; ++k) {
        value[k] = static_cast<T>(inverse_factorial);
        inverse_factorial /= k + 1;
      }
    }
  };
  constexpr Coefficients taylor;
  Vector<T> sum = broadcast(taylor.value[degree]);
#pragma GCC unroll 16
  for (int k = degree - 1; k >= 0; --k) sum = sum * r + taylor.value[k];
  // The low bits of `shifted` are n.
  const Bits exponent = (std::bit_cast<Bits>(shifted) + C::exponent_bias) << C::mantissa_bits;
  const Vector<T> result = sum * std::bit_cast<Vector<T>>(exponent);
  const Vector<T> zero{};
  const Vector<T> infinite = broadcast(std::numeric_limits<T>::infinity());
  return x < low ? zero : (x > high ? infinite : result);
}

}  // namespace hydraulis::cpu
