#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "kernels/cuda/packs.h"
#include "kernels/matrix.h"

// Numbers in memory are bf16 or float; in registers, and in every sum, float.
namespace hydraulis::cuda {

using bf16 = __nv_bfloat16;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bf16 x) { return __bfloat162float(x); }
__device__ inline void from_float(float x, float& to) { to = x; }
__device__ inline void from_float(float x, bf16& to) { to = __float2bfloat16_rn(x); }

/// kCount neighbours in memory, moved at once: 16 bytes an instruction where they have so many.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Pack {
  T value[kCount];
};

template <int kCount>
struct Floats {
  float value[kCount];
};

template <int kCount, typename T>
__device__ Floats<kCount> load(const T* from) {
  const Pack<T, kCount> pack = *reinterpret_cast<const Pack<T, kCount>*>(from);
  Floats<kCount> result;
#pragma unroll
  for (int i = 0; i < kCount; ++i) result.value[i] = to_float(pack.value[i]);
  return result;
}

template <int kCount, typename T>
__device__ void store(T* to, const Floats<kCount>& values) {
  Pack<T, kCount> pack;
#pragma unroll
  for (int i = 0; i < kCount; ++i) from_float(values.value[i], pack.value[i]);
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

/// A matrix whose type is known. Offsets are 64-bit.
template <typename T>
struct View {
  T* data;
  std::int64_t stride;
  __device__ T* row(std::int64_t i) const { return data + i * stride; }
};
template <typename T>
View<T> view(const Matrix& m) {
  return {m.as<T>(), m.stride};
}
template <typename T>
View<const T> view(const ConstMatrix& m) {
  return {m.as<T>(), m.stride};
}

/// call.operator()<T>() with the element type, float or bf16.
template <typename Call>
void with_type(DataType type, Call call) {
  switch (type) {
    case DataType::f32:
      return call.template operator()<float>();
    case DataType::bf16:
      return call.template operator()<bf16>();
    case DataType::f64:
      break;
  }
  throw std::logic_error(std::string("the CUDA backend does not compute in ") + to_string(type));
}

/// call.operator()<kCount>() with 8 numbers a pack, or one where rows do not allow it.
template <typename Call>
void with_packs(bool packed, Call call) {
  if (packed) {
    call.template operator()<8>();
  } else {
    call.template operator()<1>();
  }
}

}  // namespace hydraulis::cuda
