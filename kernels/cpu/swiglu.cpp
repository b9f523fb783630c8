#include <cstdint>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace hydraulis::cpu {
namespace {

template <typename T>
HYDRAULIS_INLINE Vector<T> sigmoid(Vector<T> x) {
  return T(1) / (T(1) + exp<T>(-x));
}

}  // namespace

template <typename T>
void swiglu(int threads, View<const T> gate_up, View<T> out) {
  const std::int64_t f = out.columns;
  parallel_rows(threads, out.rows, 2 * f, [&](Range rows) {
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
      const T* gate = gate_up.row(t);
      const T* up = gate + f;
      T* to = out.row(t);
      for_each_vector<T>(f, [&](std::int64_t i, auto lanes) {
        const Vector<T> g = load(gate + i, lanes);
        store(to + i, g * sigmoid<T>(g) * load(up + i, lanes), lanes);
      });
    }
  });
}

template <typename T>
void swiglu_backward(int threads, View<const T> dout, View<const T> gate_up, View<T> d_gate_up) {
  const std::int64_t f = dout.columns;
  parallel_rows(threads, dout.rows, 3 * f, [&](Range rows) {
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
      const T* gate = gate_up.row(t);
      const T* gradient = dout.row(t);
      T* to = d_gate_up.row(t);
      for_each_vector<T>(f, [&](std::int64_t i, auto lanes) {
        const Vector<T> g = load(gate + i, lanes);
        const Vector<T> up = load(gate + f + i, lanes);
        const Vector<T> d = load(gradient + i, lanes);
        const Vector<T> s = sigmoid<T>(g);
        store(to + i, d * up * (s * (T(1) + g * (T(1) - s))), lanes);
        store(to + f + i, d * (g * s), lanes);
      });
    }
  });
}

#define HYDRAULIS_INSTANTIATE(T)                        \
  template void swiglu<T>(int, View<const T>, View<T>); \
  template void swiglu_backward<T>(int, View<const T>, View<const T>, View<T>);
HYDRAULIS_INSTANTIATE(float)
HYDRAULIS_INSTANTIATE(double)
#undef HYDRAULIS_INSTANTIATE

}  // namespace hydraulis::cpu
