#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace hydraulis::cuda {

/// A CUDA call that failed, or a kernel before it: the message names the call.
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void check(cudaError_t error, const std::string& call) {
  if (error == cudaSuccess) return;
  throw CudaError(call + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
}

}  // namespace hydraulis::cuda

/// Every call of the CUDA runtime goes through this.
#define HYDRAULIS_CUDA_CHECK(CALL) ::hydraulis::cuda::check((CALL), #CALL)
