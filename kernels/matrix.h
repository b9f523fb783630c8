#pragma once

#include <cstdint>

namespace hydraulis {

/// Number formats that kernels compute with. The CPU backend computes in f32 and f64 (the latter to
/// prove parallel strategies equal), the CUDA backend in bf16 with f32 sums.
enum class DataType : std::uint8_t { f32, f64, bf16 };

constexpr std::int64_t size_of(DataType type) {
  return type == DataType::f64 ? 8 : type == DataType::f32 ? 4 : 2;
}
const char* to_string(DataType type);
/// Of statistics, sums, gradients and master copies beside numbers of this type.
constexpr DataType wide_type(DataType type) {
  return type == DataType::bf16 ? DataType::f32 : type;
}

/// A matrix in device memory that a kernel may write: row-major, `stride` elements from one row to
/// the next (at least `columns`). A view: it owns nothing. Offsets are 64-bit throughout.
struct Matrix {
  void* data = nullptr;
  DataType type = DataType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;

  std::int64_t elements() const { return rows * columns; }
  /// Rows [begin, begin + count).
  Matrix row_range(std::int64_t begin, std::int64_t count) const {
    return {static_cast<char*>(data) + begin * stride * size_of(type), type, count, columns,
            stride};
  }
  /// Columns [begin, begin + count).
  Matrix column_range(std::int64_t begin, std::int64_t count) const {
    return {static_cast<char*>(data) + begin * size_of(type), type, rows, count, stride};
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// The same, read only.
struct ConstMatrix {
  const void* data = nullptr;
  DataType type = DataType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;

  ConstMatrix() = default;
  ConstMatrix(const void* memory, DataType element, std::int64_t r, std::int64_t c, std::int64_t s)
      : data(memory), type(element), rows(r), columns(c), stride(s) {}
  ConstMatrix(const Matrix& m)  // NOLINT(google-explicit-constructor): a view of a view
      : data(m.data), type(m.type), rows(m.rows), columns(m.columns), stride(m.stride) {}

  std::int64_t elements() const { return rows * columns; }
  ConstMatrix row_range(std::int64_t begin, std::int64_t count) const {
    return {static_cast<const char*>(data) + begin * stride * size_of(type), type, count, columns,
            stride};
  }
  ConstMatrix column_range(std::int64_t begin, std::int64_t count) const {
    return {static_cast<const char*>(data) + begin * size_of(type), type, rows, count, stride};
  }
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

}  // namespace hydraulis
