#include "costmodel/kernel_work.h"

#include <stdexcept>

namespace hydraulis {
namespace {

std::int64_t argument_elements(const KernelShape& shape, std::int64_t rows) {
  const std::int64_t whole = rows * shape.width;
  switch (shape.kernel) {
    case Kernel::gemm_forward:
    case Kernel::gemm_input_gradient:
    case Kernel::gemm_weight_gradient:
      return rows * (shape.inputs + shape.outputs) + shape.inputs * shape.outputs;
    case Kernel::attention:
      return 2 * rows * std::int64_t{shape.heads + shape.kv_heads} * shape.head_dim;
    case Kernel::attention_backward:
      return 4 * rows * std::int64_t{shape.heads + shape.kv_heads} * shape.head_dim;
    case Kernel::rotary_table:
    case Kernel::cross_entropy_max:
    case Kernel::cross_entropy_sums:
    case Kernel::zero:
    case Kernel::sum_squares:
      return whole;
    case Kernel::rms_norm:
    case Kernel::rotary:
    case Kernel::attention_delta:
    case Kernel::embedding:
    case Kernel::cross_entropy_backward:
    case Kernel::convert:
      return 2 * whole;
    case Kernel::rms_norm_backward:
    case Kernel::swiglu:
    case Kernel::embedding_backward:
    case Kernel::add:
      return 3 * whole;
    case Kernel::swiglu_backward:
      return 5 * whole;
    case Kernel::adamw:
      return 7 * whole;
  }
  throw std::logic_error("a kernel whose work is not known");
}

}  // namespace

KernelWork kernel_work(const KernelShape& shape, std::int64_t tokens, std::int64_t length,
                       std::int64_t element_bytes) {
  KernelWork work;
  work.bytes = argument_elements(shape, tokens) * element_bytes;
  const auto rows = static_cast<double>(tokens);
  if (shape.kernel <= Kernel::gemm_weight_gradient) {
    work.flops = 2 * rows * static_cast<double>(shape.inputs) * static_cast<double>(shape.outputs);
  } else if (is_attention(shape.kernel)) {
    const double products = shape.kernel == Kernel::attention ? 2 : 5;
    work.flops = products * rows * static_cast<double>(length) * static_cast<double>(shape.heads) *
                 static_cast<double>(shape.head_dim);
  }
  return work;
}

}  // namespace hydraulis
