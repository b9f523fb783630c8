#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/shared.cuh"
#include "tests/cuda_emulator/emulator.h"

// A device with a few arrays, for kernels that are right or wrong in one known way.
namespace emulator {

using hydraulis::cuda::launch;

class Toy {
 public:
  Toy() {
    HYDRAULIS_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    HYDRAULIS_CUDA_CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    const cudaMemPoolProps properties{
        cudaMemAllocationTypePinned, cudaMemHandleTypeNone, {cudaMemLocationTypeDevice, 0}, 0};
    HYDRAULIS_CUDA_CHECK(cudaMemPoolCreate(&pool, &properties));
  }
  ~Toy() {
    cudaDeviceSynchronize();
    for (void* block : blocks_) cudaFreeAsync(block, stream);
    cudaDeviceSynchronize();
    cudaStreamDestroy(stream);
    cudaStreamDestroy(other);
    cudaMemPoolDestroy(pool);
  }
  Toy(const Toy&) = delete;
  Toy& operator=(const Toy&) = delete;

  /// Unwritten numbers that are there at once.
  template <typename T = float>
  T* array(std::size_t count) {
    void* block = nullptr;
    HYDRAULIS_CUDA_CHECK(cudaMallocFromPoolAsync(&block, count * sizeof(T), pool, stream));
    HYDRAULIS_CUDA_CHECK(cudaStreamSynchronize(stream));
    blocks_.push_back(block);
    return static_cast<T*>(block);
  }
  template <typename T>
  T* array(const std::vector<T>& values) {
    T* result = array<T>(values.size());
    HYDRAULIS_CUDA_CHECK(cudaMemcpyAsync(result, values.data(), values.size() * sizeof(T),
                                         cudaMemcpyHostToDevice, stream));
    HYDRAULIS_CUDA_CHECK(cudaStreamSynchronize(stream));
    return result;
  }
  template <typename T>
  std::vector<T> read(const T* from, std::size_t count) {
    std::vector<T> values(count);
    HYDRAULIS_CUDA_CHECK(
        cudaMemcpyAsync(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
    HYDRAULIS_CUDA_CHECK(cudaStreamSynchronize(stream));
    return values;
  }
  void synchronize() { HYDRAULIS_CUDA_CHECK(cudaDeviceSynchronize()); }

  cudaStream_t stream = nullptr;
  cudaStream_t other = nullptr;
  cudaMemPool_t pool = nullptr;

 private:
  std::vector<void*> blocks_;
};

inline std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

}  // namespace emulator
