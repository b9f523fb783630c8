#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/matrix.h"

namespace hydraulis::cuda {

/// Whether rows can be read and written in packs of so many numbers, which divide `columns`.
inline bool packs(int count, std::int64_t columns, std::initializer_list<ConstMatrix> matrices) {
  if (columns % count != 0) return false;
  for (const ConstMatrix& m : matrices) {
    const std::int64_t bytes = count * size_of(m.type) < 16 ? count * size_of(m.type) : 16;
    if (reinterpret_cast<std::uintptr_t>(m.data) % static_cast<std::uint64_t>(bytes) != 0) {
      return false;
    }
    if (m.rows > 1 && m.stride * size_of(m.type) % bytes != 0) return false;
  }
  return true;
}

}  // namespace hydraulis::cuda
