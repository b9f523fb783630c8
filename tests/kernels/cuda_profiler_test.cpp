// The profiler's cases on the CUDA backend, in its types.

#include <gtest/gtest.h>

#include "costmodel/profiler/kernel_grid.h"
#include "tests/costmodel/profiler/small_profile.h"
#include "tests/kernels/cuda_fixture.h"

namespace hydraulis {
namespace {

TEST(CudaProfiler, EveryKernelRuns) {
  const CudaBackend gpu;
  Bench bench;
  bench.device = gpu.device.get();
  bench.compute = gpu.compute.get();
  bench.stream = gpu.stream.get();
  bench.type = DataType::bf16;
  KernelGridSettings settings;
  settings.models = {test::small_model()};
  settings.models[0].head_dim = 64;
  settings.tensor_parallel = {1};
  settings.max_tokens = 32;
  for (const KernelPoint& point : kernel_grid(settings)) {
    SCOPED_TRACE(to_string(point.shape));
    KernelCase measured(bench, point, 2);
    for (int i = 0; i < 2; ++i) measured.launch();
    EXPECT_GE(measured.allocated_bytes(), 0);
    ASSERT_EQ(emulator::take_fault(), "");
  }
}

}  // namespace
}  // namespace hydraulis
