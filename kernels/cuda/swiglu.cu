#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/numbers.cuh"

namespace hydraulis::cuda {

namespace {

__device__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

template <typename T>
struct Swiglu {
  View<const T> gate_up;
  View<T> out;
  std::int64_t width;
  template <int kCount>
  __device__ void at(std::int64_t row, std::int64_t column) const {
    const T* from = gate_up.row(row) + column;
    Floats<kCount> gate = load<kCount>(from);
    const Floats<kCount> up = load<kCount>(from + width);
#pragma unroll
    for (int i = 0; i < kCount; ++i) gate.value[i] *= sigmoid(gate.value[i]) * up.value[i];
    store(out.row(row) + column, gate);
  }
};

template <typename T>
struct SwigluBackward {
  View<const T> dout, gate_up;
  View<T> d_gate_up;  // may be gate_up
  std::int64_t width;
  template <int kCount>
  __device__ void at(std::int64_t row, std::int64_t column) const {
    const T* from = gate_up.row(row) + column;
    const Floats<kCount> gate = load<kCount>(from);
    const Floats<kCount> up = load<kCount>(from + width);
    const Floats<kCount> gradient = load<kCount>(dout.row(row) + column);
    Floats<kCount> d_gate;
    Floats<kCount> d_up;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float g = gate.value[i];
      const float s = sigmoid(g);
      d_gate.value[i] = gradient.value[i] * up.value[i] * (s * (1.0F + g * (1.0F - s)));
      d_up.value[i] = gradient.value[i] * (g * s);
    }
    T* to = d_gate_up.row(row) + column;
    store(to, d_gate);
    store(to + width, d_up);
  }
};

}  // namespace

void swiglu(ConstMatrix gate_up, Matrix out, cudaStream_t stream) {
  with_type(out.type, [&]<typename T>() {
    with_packs(packs(8, out.columns, {gate_up, out}), [&]<int kCount>() {
      map<kCount>(Swiglu<T>{view<T>(gate_up), view<T>(out), out.columns}, out.rows, out.columns,
                  stream);
    });
  });
}

void swiglu_backward(ConstMatrix dout, ConstMatrix gate_up, Matrix d_gate_up, cudaStream_t stream) {
  with_type(dout.type, [&]<typename T>() {
    with_packs(packs(8, dout.columns, {dout, gate_up, d_gate_up}), [&]<int kCount>() {
      map<kCount>(
          SwigluBackward<T>{view<T>(dout), view<T>(gate_up), view<T>(d_gate_up), dout.columns},
          dout.rows, dout.columns, stream);
    });
  });
}

}  // namespace hydraulis::cuda
