// Prints what kernels ask for of dynamic shared memory, for the table of resources.

#include <cstddef>
#include <cstdio>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/compute.h"

int main() {
  for (const int dim : hydraulis::cuda::kHeadSizes) {
    const auto print = [&](const char* kernel, std::size_t bytes) {
      std::printf("%s<%d> %zu\n", kernel, dim, bytes);
    };
    print("attention_kernel", hydraulis::cuda::attention_shared_bytes(dim));
    print("dq_kernel", hydraulis::cuda::attention_dq_shared_bytes(dim));
    print("dkv_kernel", hydraulis::cuda::attention_dkv_shared_bytes(dim));
  }
  return 0;
}
