#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/device.cuh"
#include "kernels/matrix.h"

namespace hydraulis::cuda {

/// Matrix products by cuBLASLt, sums in f32. The algorithm for a shape is asked for once; none is
/// used whose result depends on who comes first.
class Gemm {
 public:
  explicit Gemm(CudaDevice& device);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// As Compute::gemm, for matrices that are not empty, a and b of one type and c of that or f32.
  void run(bool transpose_a, bool transpose_b, double alpha, ConstMatrix a, ConstMatrix b,
           double beta, Matrix c, Stream& stream);

 private:
  struct Library;
  CudaDevice& device_;
  std::unique_ptr<Library> library_;
};

}  // namespace hydraulis::cuda
