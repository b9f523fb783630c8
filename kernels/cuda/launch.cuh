#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "kernels/cuda/check.cuh"

namespace hydraulis::cuda {

/// The kernel's name as the compiler spells it.
template <auto Kernel>
std::string kernel_name() {
  const std::string_view text = __PRETTY_FUNCTION__;
  const std::size_t begin = text.find("Kernel = ") + 9;
  return std::string(text.substr(begin, text.find_first_of(";]", begin) - begin));
}

template <auto Kernel, typename... Parameters, typename... Arguments>
void launch_as(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
               cudaStream_t stream, Arguments&&... arguments) {
#ifdef HYDRAULIS_CUDA_EMULATOR
  emulator::name_kernel(reinterpret_cast<const void*>(kernel), kernel_name<Kernel>());
#endif
  std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  const cudaError_t error = std::apply(
      [&](Parameters&... each) {
        void* addresses[] = {&each...};
        return cudaLaunchKernel(kernel, grid, block, addresses, shared_bytes, stream);
      },
      values);
  if (error != cudaSuccess) check(error, "launch of " + kernel_name<Kernel>());
}

/// Puts a kernel on a stream: what <<<>>> does, in plain C++, so that the same source is run by the
/// emulator.
template <auto Kernel, typename... Arguments>
void launch(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            Arguments&&... arguments) {
  launch_as<Kernel>(Kernel, grid, block, shared_bytes, stream,
                    std::forward<Arguments>(arguments)...);
}

/// Lets a kernel use more dynamic shared memory than the 48 KiB that every kernel may.
template <auto Kernel>
void allow_shared_bytes(std::size_t bytes) {
  check(cudaFuncSetAttribute(Kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "shared memory of " + kernel_name<Kernel>());
}

}  // namespace hydraulis::cuda
