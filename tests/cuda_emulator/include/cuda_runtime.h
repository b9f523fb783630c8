#pragma once

// Stands in for the CUDA runtime where there is no GPU: the part of it that kernels/cuda uses, with
// its names and rules. What it finds wrong is a sticky error whose text cudaGetErrorString gives.
// There is no legacy default stream: every call names its stream.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda_emulator/block.h"

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier): CUDA's names

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

extern dim3 gridDim;
extern dim3 blockDim;
extern uint3 blockIdx;
extern uint3 threadIdx;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
};
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();

struct CUstream_st;
struct CUevent_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;

constexpr unsigned cudaStreamNonBlocking = 1;
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);

constexpr unsigned cudaEventDefault = 0;
constexpr unsigned cudaEventDisableTiming = 2;
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceSynchronize();
struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  std::size_t totalGlobalMem;
  int multiProcessorCount;
  int major, minor;
};
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);

struct CUmemPoolHandle_st;
using cudaMemPool_t = CUmemPoolHandle_st*;
enum cudaMemAllocationType { cudaMemAllocationTypePinned = 1 };
enum cudaMemAllocationHandleType { cudaMemHandleTypeNone = 0 };
enum cudaMemLocationType { cudaMemLocationTypeDevice = 1 };
struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
struct cudaMemPoolProps {
  cudaMemAllocationType allocType;
  cudaMemAllocationHandleType handleTypes;
  cudaMemLocation location;
  std::size_t maxSize;
};
enum cudaMemPoolAttr {
  cudaMemPoolAttrReleaseThreshold = 4,
  cudaMemPoolAttrReservedMemCurrent = 5,
};
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties);
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMallocFromPoolAsync(void** block, std::size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream);
cudaError_t cudaFreeAsync(void* block, cudaStream_t stream);
cudaError_t cudaMallocHost(void** block, std::size_t bytes);
cudaError_t cudaFreeHost(void* block);

enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
};
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream);

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute,
                                 int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

namespace emulator {

cudaError_t launch(Launch launch, std::shared_ptr<void> arguments, cudaStream_t stream);

}  // namespace emulator

/// Arguments are copied now; the kernel runs when its stream comes to it.
template <typename... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes, cudaStream_t stream) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...));
  static_assert((sizeof(Parameters) + ... + 0) <= 4096, "more than a kernel takes");
  using Values = std::tuple<Parameters...>;
  const auto values = [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::make_shared<Values>(*static_cast<Parameters*>(arguments[I])...);
  }
  (std::index_sequence_for<Parameters...>{});
  emulator::Launch launch;
  launch.grid = {grid.x, grid.y, grid.z};
  launch.block = {block.x, block.y, block.z};
  launch.shared_bytes = shared_bytes;
  launch.kernel = reinterpret_cast<const void*>(kernel);
  launch.call = [](const void* function, const void* all) {
    std::apply(reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(function)),
               *static_cast<const Values*>(all));
  };
  launch.arguments = values.get();
  launch.argument_bytes = sizeof(Values);
  return emulator::launch(std::move(launch), values, stream);
}

// What threads of a kernel call.

#define EMULATOR_PLACE \
  emulator::Place { file, line }
#define EMULATOR_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(EMULATOR_HERE) { emulator::block_barrier(EMULATOR_PLACE); }
void __syncwarp(std::uint32_t mask = 0xFFFFFFFFU, EMULATOR_HERE);

std::uint64_t emulated_shuffle(std::uint32_t mask, std::uint64_t value, unsigned source,
                               emulator::Place place);
unsigned emulated_ballot(std::uint32_t mask, bool vote, emulator::Place place);

namespace emulator {
template <typename T>
T shuffle(std::uint32_t mask, T value, unsigned source, Place place) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = emulated_shuffle(mask, bits, source, place);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
}  // namespace emulator

// Within segments of `width` lanes, a power of two; where the source lies outside, one's own value.
template <typename T>
T __shfl_sync(std::uint32_t mask, T value, int source, int width = 32, EMULATOR_HERE) {
  const auto segment = emulator::lane() / static_cast<unsigned>(width);
  const auto w = static_cast<unsigned>(width);
  return emulator::shuffle(mask, value, segment * w + static_cast<unsigned>(source) % w,
                           EMULATOR_PLACE);
}
template <typename T>
T __shfl_xor_sync(std::uint32_t mask, T value, int lanes, int width = 32, EMULATOR_HERE) {
  const unsigned self = emulator::lane();
  const auto w = static_cast<unsigned>(width);
  const unsigned source = self ^ static_cast<unsigned>(lanes);
  return emulator::shuffle(mask, value, source / w > self / w ? self : source, EMULATOR_PLACE);
}
template <typename T>
T __shfl_down_sync(std::uint32_t mask, T value, unsigned lanes, int width = 32, EMULATOR_HERE) {
  const unsigned self = emulator::lane();
  const auto w = static_cast<unsigned>(width);
  const unsigned source = self + lanes;
  return emulator::shuffle(mask, value, source / w != self / w ? self : source, EMULATOR_PLACE);
}
template <typename T>
T __shfl_up_sync(std::uint32_t mask, T value, unsigned lanes, int width = 32, EMULATOR_HERE) {
  const unsigned self = emulator::lane();
  const auto w = static_cast<unsigned>(width);
  return emulator::shuffle(mask, value, self % w < lanes ? self : self - lanes, EMULATOR_PLACE);
}
inline unsigned __ballot_sync(std::uint32_t mask, int vote, EMULATOR_HERE) {
  return emulated_ballot(mask, vote != 0, EMULATOR_PLACE);
}
inline int __any_sync(std::uint32_t mask, int vote, EMULATOR_HERE) {
  return emulated_ballot(mask, vote != 0, EMULATOR_PLACE) != 0 ? 1 : 0;
}
inline int __all_sync(std::uint32_t mask, int vote, EMULATOR_HERE) {
  return emulated_ballot(mask, vote == 0, EMULATOR_PLACE) == 0 ? 1 : 0;
}

// Atomic because threads give way only at barriers; what they touch is noted as atomic.
#define EMULATOR_ATOMIC(NAME, RESULT)                                  \
  template <typename T>                                                \
  __attribute__((no_sanitize("thread"))) T NAME(T* address, T value) { \
    emulator::touch(address, sizeof(T), emulator::AccessKind::atomic); \
    const T old = *address;                                            \
    *address = static_cast<T>(RESULT);                                 \
    return old;                                                        \
  }
EMULATOR_ATOMIC(atomicAdd, old + value)
EMULATOR_ATOMIC(atomicMax, old > value ? old : value)
EMULATOR_ATOMIC(atomicMin, old < value ? old : value)
EMULATOR_ATOMIC(atomicExch, value)
EMULATOR_ATOMIC(atomicOr, old | value)
#undef EMULATOR_ATOMIC
template <typename T>
__attribute__((no_sanitize("thread"))) T atomicCAS(T* address, T expected, T value) {
  emulator::touch(address, sizeof(T), emulator::AccessKind::atomic);
  const T old = *address;
  if (old == expected) *address = value;
  return old;
}

inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __int_as_float(int x) {
  float result = 0;
  std::memcpy(&result, &x, sizeof result);
  return result;
}
template <typename T>
T __ldg(const T* address) {
  return *address;
}

// Shared arrays, declared alike for nvcc in kernels/cuda/shared.cuh.
#define HYDRAULIS_SHARED(TYPE, NAME, COUNT)                      \
  static const char NAME##_key = 0;                              \
  TYPE* const NAME = static_cast<TYPE*>(emulator::static_shared( \
      &NAME##_key, sizeof(TYPE) * (COUNT), alignof(TYPE) < 16 ? 16 : alignof(TYPE)))
#define HYDRAULIS_DYNAMIC_SHARED(NAME) \
  char* const NAME = static_cast<char*>(emulator::dynamic_shared())

// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)
