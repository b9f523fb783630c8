#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/compute.h"
#include "kernels/cuda/embedding.h"
#include "kernels/matrix.h"

// The CUDA kernels, each in the file of its name, put on a stream. Shapes and types have been
// checked (compute.cu). What the host gives (ids, positions) is in device memory here, workspaces
// are as large as their functions say.
namespace hydraulis::cuda {

// elementwise.cu
void add(ConstMatrix a, ConstMatrix b, Matrix out, cudaStream_t stream);
/// y = factor·y, and 0 without reading y where factor is 0.
void scale(double factor, Matrix y, cudaStream_t stream);
void convert(ConstMatrix from, Matrix to, cudaStream_t stream);
std::int64_t sum_squares_workspace_bytes();
/// Where in the workspace the sum will stand.
const double* sum_squares(ConstMatrix x, void* workspace, cudaStream_t stream);

// rms_norm.cu
void rms_norm(ConstMatrix x, ConstMatrix weight, double epsilon, Matrix y, Matrix inverse_rms,
              cudaStream_t stream);
std::int64_t rms_norm_workspace_bytes(std::int64_t rows, std::int64_t columns);
void rms_norm_backward(ConstMatrix dy, ConstMatrix x, ConstMatrix weight, ConstMatrix inverse_rms,
                       bool accumulate, Matrix dx, Matrix dweight, void* workspace,
                       cudaStream_t stream);

// rotary.cu
void rotary_table(const std::int32_t* positions, const double* inverse_frequencies, Matrix table,
                  cudaStream_t stream);
void rotary(Matrix x, int heads, ConstMatrix table, bool inverse, cudaStream_t stream);

// swiglu.cu
void swiglu(ConstMatrix gate_up, Matrix out, cudaStream_t stream);
void swiglu_backward(ConstMatrix dout, ConstMatrix gate_up, Matrix d_gate_up, cudaStream_t stream);

// embedding.cu
void embedding(const std::int32_t* ids, std::int64_t first_row, ConstMatrix table, Matrix out,
               cudaStream_t stream);
struct DeviceEmbeddingPlan {
  const std::int64_t* tokens = nullptr;
  const EmbeddingPlan::Piece* pieces = nullptr;
  const EmbeddingPlan::Row* rows = nullptr;
  std::int64_t row_count = 0;
};
/// `sums` has a row a piece, f32.
void embedding_backward(const DeviceEmbeddingPlan& plan, ConstMatrix dout, Matrix dtable,
                        Matrix sums, cudaStream_t stream);

// cross_entropy.cu
void cross_entropy_max(ConstMatrix logits, std::int64_t vocabulary, Matrix row_max,
                       cudaStream_t stream);
void cross_entropy_sums(ConstMatrix logits, std::int64_t vocabulary, std::int64_t first_column,
                        const std::int32_t* targets, ConstMatrix row_max, Matrix sums,
                        cudaStream_t stream);
void cross_entropy_backward(Matrix logits, std::int64_t vocabulary, std::int64_t first_column,
                            const std::int32_t* targets, ConstMatrix row_max, ConstMatrix sums,
                            cudaStream_t stream);

}  // namespace hydraulis::cuda
