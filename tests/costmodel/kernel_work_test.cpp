#include "costmodel/kernel_work.h"

#include <gtest/gtest.h>

namespace hydraulis {
namespace {

TEST(KernelWork, ProductsAndAttentionByHand) {
  KernelShape shape;
  shape.inputs = 3;
  shape.outputs = 5;
  for (const Kernel kernel :
       {Kernel::gemm_forward, Kernel::gemm_input_gradient, Kernel::gemm_weight_gradient}) {
    shape.kernel = kernel;
    const KernelWork work = kernel_work(shape, 7, 0, 4);
    EXPECT_EQ(work.flops, 2 * 3 * 5 * 7);
    EXPECT_EQ(work.bytes, 4 * (7 * 3 + 7 * 5 + 3 * 5));
  }
  // Two sequences of 4: 2 · 4·4/2 pairs, each 2 products · 2 operations · 3 heads · 8.
  KernelShape attention;
  attention.kernel = Kernel::attention;
  attention.heads = 3;
  attention.kv_heads = 1;
  attention.head_dim = 8;
  const KernelWork forward = kernel_work(attention, 8, 4, 2);
  EXPECT_EQ(forward.flops, 16 * 2 * 2 * 3 * 8);
  EXPECT_EQ(forward.bytes, 2 * (2 * 8 * 3 * 8 + 2 * 8 * 1 * 8));  // q, out; k, v
  attention.kernel = Kernel::attention_backward;
  EXPECT_EQ(kernel_work(attention, 8, 4, 2).flops, 2.5 * forward.flops);
}

TEST(KernelWork, RowsReadAndWritten) {
  KernelShape shape;
  shape.width = 10;
  const auto elements = [&](Kernel kernel) {
    shape.kernel = kernel;
    return kernel_work(shape, 6, 0, 1).bytes;
  };
  EXPECT_EQ(elements(Kernel::zero), 60);
  EXPECT_EQ(elements(Kernel::convert), 120);
  EXPECT_EQ(elements(Kernel::add), 180);
  EXPECT_EQ(elements(Kernel::swiglu), 180);           // gate, up; out
  EXPECT_EQ(elements(Kernel::swiglu_backward), 300);  // d out, gate, up; d gate, d up
  EXPECT_EQ(elements(Kernel::adamw), 420);            // gradient; parameter and both moments twice
  for (int kernel = 0; kernel < kKernels; ++kernel) {
    shape.kernel = static_cast<Kernel>(kernel);
    shape.inputs = shape.outputs = 2;
    shape.heads = shape.kv_heads = shape.head_dim = 2;
    EXPECT_GT(kernel_work(shape, 6, 3, 4).bytes, 0) << to_string(shape.kernel);
  }
}

}  // namespace
}  // namespace hydraulis
