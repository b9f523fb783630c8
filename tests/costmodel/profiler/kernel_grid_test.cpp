#include "costmodel/profiler/kernel_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "costmodel/compose_operations.h"
#include "tests/costmodel/profiler/small_profile.h"

namespace hydraulis {
namespace {

using test::small_model;

KernelGridSettings settings_for(std::vector<int> tensor_parallel) {
  KernelGridSettings settings;
  settings.models = {small_model()};
  settings.tensor_parallel = std::move(tensor_parallel);
  settings.max_tokens = 100;
  return settings;
}

TEST(KernelGrid, HasEveryShapeOfEveryDegreeUpToTheLongestMicroBatch) {
  const std::vector<KernelPoint> points = kernel_grid(settings_for({1, 2, 4}));
  for (const int tp : {1, 2, 4}) {
    for (const KernelShape& shape : kernel_shapes(small_model(), tp)) {
      std::int64_t least = 1000;
      std::int64_t most = 0;
      for (const KernelPoint& point : points) {
        if (!(point.shape == shape)) continue;
        least = std::min(least, point.tokens);
        most = std::max(most, point.tokens);
      }
      EXPECT_LE(least, 32) << to_string(shape);
      EXPECT_EQ(most, 100) << to_string(shape);
    }
  }
  for (const Kernel kernel : {Kernel::adamw, Kernel::sum_squares}) {
    EXPECT_TRUE(std::ranges::any_of(
        points, [&](const KernelPoint& point) { return point.shape.kernel == kernel; }));
  }
}

TEST(KernelGrid, NoPointTwiceAndDegreesThatCannotBeAreLeftOut) {
  const std::vector<KernelPoint> points = kernel_grid(settings_for({1, 2, 3}));
  std::set<std::tuple<std::string, std::int64_t, std::int64_t>> seen;
  for (const KernelPoint& point : points) {
    EXPECT_TRUE(seen.insert({to_string(point.shape), point.tokens, point.length}).second);
    EXPECT_LE(point.length, point.tokens);
    EXPECT_EQ(point.length > 0, is_attention(point.shape.kernel));
  }
  EXPECT_EQ(kernel_grid(settings_for({1, 2})).size(), points.size());  // 4 heads, no thirds
}

// Sequences alone and in packs: otherwise Σs² and Σs cannot be told apart.
TEST(KernelGrid, AttentionHasPacksOfEveryLength) {
  std::set<std::pair<std::int64_t, std::int64_t>> sizes;
  for (const KernelPoint& point : kernel_grid(settings_for({1}))) {
    if (point.shape.kernel == Kernel::attention) sizes.insert({point.tokens, point.length});
  }
  for (const auto& [tokens, length] : sizes) {
    EXPECT_TRUE(sizes.contains({length, length})) << length;
    EXPECT_TRUE(sizes.contains({100, length})) << length;
  }
  EXPECT_GE(sizes.size(), 5u);
}

TEST(KernelCase, EveryKernelRunsAndSaysWhatItTakes) {
  CpuProcess process = start_cpu_process(1);
  for (const DataType type : {DataType::f32, DataType::f64}) {
    const test::CpuBench cpu(process, type);
    for (const KernelPoint& point : kernel_grid(settings_for({1}))) {
      if (point.tokens > 64) continue;
      KernelCase measured(cpu.bench, point, 2);
      for (int i = 0; i < 3; ++i) measured.launch();
      EXPECT_GE(measured.allocated_bytes(), 0);
    }
  }
  EXPECT_EQ(process.device->memory().allocated, 0);
}

// A product large enough to be rearranged takes workspace, and the profile says how much.
TEST(KernelCase, WorkspaceIsSeen) {
  CpuProcess process = start_cpu_process(1);
  const test::CpuBench cpu(process);
  KernelPoint point;
  point.shape.kernel = Kernel::gemm_forward;
  point.shape.inputs = point.shape.outputs = point.tokens = 256;
  KernelCase product(cpu.bench, point, 1);
  const std::int64_t before = process.device->memory().allocated;
  EXPECT_GE(before, 3 * 256 * 256 * 4);
  EXPECT_GT(product.allocated_bytes(), 0);
  EXPECT_LE(product.allocated_bytes(), 2 * kCpuProductElements * 4);
}

}  // namespace
}  // namespace hydraulis
