#include <gtest/gtest.h>

#include "tests/kernels/cuda_fixture.h"

namespace hydraulis {
namespace {

#ifndef __SANITIZE_ADDRESS__  // which would mark gigabytes as taken

/// Rows so far apart that the last begins 2³¹ numbers behind the first, its contents a near
/// matrix's.
class FarMatrix {
 public:
  FarMatrix(const CudaBackend& gpu, const DeviceMatrix& near)
      : gpu_(&gpu),
        near_(near.matrix()),
        stride_((std::int64_t{1} << 31) / (near_.rows - 1)),
        buffer_(*gpu.device, ((near_.rows - 1) * stride_ + near_.columns) * size_of(near_.type)) {
    copy(matrix(), near_);
  }
  Matrix matrix() const { return {buffer_.data(), near_.type, near_.rows, near_.columns, stride_}; }
  /// The near matrix gets what is here.
  void come_near() const { copy(near_, matrix()); }

 private:
  void copy(const Matrix& to, const Matrix& from) const {
    for (std::int64_t i = 0; i < to.rows; ++i) {
      gpu_->device->copy(to.row_range(i, 1).data, from.row_range(i, 1).data,
                         to.columns * size_of(to.type), *gpu_->stream);
    }
  }
  const CudaBackend* gpu_;
  Matrix near_;
  std::int64_t stride_;
  DeviceBuffer buffer_;
};

class CudaFarRows : public testing::Test {
 protected:
  /// A kernel on near and on far rows gives the same bits.
  static void check(const CudaBackend& gpu, const DeviceMatrix& in, DeviceMatrix& out,
                    const std::function<void(ConstMatrix, Matrix)>& kernel) {
    kernel(in, out);
    const std::vector<char> near = out.bytes();
    const FarMatrix far_in(gpu, in);
    const FarMatrix far_out(gpu, out);
    kernel(far_in.matrix(), far_out.matrix());
    gpu.device->zero(out.matrix().data, out.matrix().columns * 2, *gpu.stream);
    far_out.come_near();
    EXPECT_EQ(out.bytes(), near);
    ASSERT_EQ(emulator::take_fault(), "");
  }
};

TEST_F(CudaFarRows, OfKernelsThatWorkRowByRow) {
  const CudaBackend gpu;
  Random random(1);
  DeviceMatrix in(gpu, DataType::bf16, 3, 64);
  DeviceMatrix out(gpu, DataType::bf16, 3, 64);
  DeviceMatrix half(gpu, DataType::bf16, 3, 32);
  DeviceMatrix weight(gpu, DataType::bf16, 1, 64);
  DeviceMatrix column(gpu, DataType::f32, 3, 1);
  DeviceMatrix sums(gpu, DataType::f32, 1, 64);
  in.set(random);
  out.set(random);
  half.set(random);
  weight.set(random);
  column.set(1);
  sums.set(0);
  Stream& stream = *gpu.stream;
  check(gpu, in, out, [&](ConstMatrix a, Matrix b) { gpu->add(a, a, b, stream); });
  check(gpu, in, out, [&](ConstMatrix a, Matrix b) { gpu->convert(a, b, stream); });
  check(gpu, in, half, [&](ConstMatrix a, Matrix b) { gpu->swiglu(a, b, stream); });
  check(gpu, half, out, [&](ConstMatrix a, Matrix b) { gpu->swiglu_backward(a, in, b, stream); });
  check(gpu, in, out,
        [&](ConstMatrix a, Matrix b) { gpu->rms_norm(a, weight, 1e-5, b, column, stream); });
  check(gpu, in, out, [&](ConstMatrix a, Matrix b) {
    gpu->rms_norm_backward(a, a, weight, column, false, b, sums, stream);
  });
  check(gpu, in, column,
        [&](ConstMatrix a, Matrix b) { gpu->cross_entropy_max(a, 64, b, stream); });
  const std::vector<std::int32_t> ids = {2, 0, 1};
  check(gpu, in, out, [&](ConstMatrix a, Matrix b) { gpu->embedding(ids, 0, a, b, stream); });
}

TEST_F(CudaFarRows, OfAttention) {
  const CudaBackend gpu;
  Random random(1);
  const AttentionShape shape{1, 1, 64, 0.125};
  const std::vector<AttentionSegment> segments = {{0, 3, 0, 3, true}};
  DeviceMatrix x(gpu, DataType::bf16, 3, 64);
  DeviceMatrix out(gpu, DataType::bf16, 3, 64);
  DeviceMatrix lse(gpu, DataType::f32, 3, 1);
  x.set(random);
  check(gpu, x, out, [&](ConstMatrix a, Matrix b) {
    gpu->attention(shape, segments, a, a, a, false, b, lse, *gpu.stream);
  });
  check(gpu, x, out, [&](ConstMatrix a, Matrix b) {
    DeviceMatrix dk(gpu, DataType::f32, 3, 64);
    for (std::int64_t i = 0; i < 3; ++i) {
      gpu.device->zero(b.row_range(i, 1).data, 128, *gpu.stream);
    }
    dk.set(0);
    gpu->attention_backward(shape, segments, a, a, a, a, lse, lse, b, dk, dk, *gpu.stream);
  });
}

#endif

std::vector<std::int32_t> numbers_below(std::int32_t end, std::int64_t count) {
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<std::int32_t>(i) % end);
  return values;
}

// More rows than a grid has in its second and third direction (65,535).
TEST(CudaLimits, ManyRows) {
  const CudaBackend gpu;
  constexpr std::int64_t kRows = 70000;
  DeviceMatrix table(gpu, DataType::bf16, 7, 8, 0);
  DeviceMatrix rows(gpu, DataType::bf16, kRows, 8, 0);
  DeviceMatrix y(gpu, DataType::bf16, kRows, 8, 0);
  DeviceMatrix inverse(gpu, DataType::f32, kRows, 1, 0);
  Random random(1);
  const auto values = table.set(random);
  const auto ids = numbers_below(7, kRows);
  gpu->embedding(ids, 0, table, rows, *gpu.stream);
  gpu->add(rows, rows, y, *gpu.stream);
  const Data<double> result = y.get();
  for (std::int64_t i = 0; i < kRows; ++i) {
    ASSERT_EQ(result.at(i, 3), 2 * values.at(i % 7, 3));
  }
  DeviceMatrix weight(gpu, DataType::bf16, 1, 8);
  weight.set(1);
  gpu->rms_norm(rows, weight, 1e-5, y, inverse, *gpu.stream);
  const Data<double> all = inverse.get();
  for (std::int64_t i = 0; i < kRows; ++i) ASSERT_EQ(all.at(i, 0), all.at(i % 7, 0));
  ASSERT_EQ(emulator::take_fault(), "");
}

#ifdef HYDRAULIS_CUDA_EMULATOR
// A pack of 80,000 sequences of 16 tokens and 32 heads is launched; running it would take the
// emulator an hour.
TEST(CudaLimits, ManySequencesAreLaunched) {
  const CudaBackend gpu(0);  // queues, and runs nothing yet
  const AttentionShape shape{32, 8, 64, 0.125};
  std::vector<AttentionSegment> segments;
  for (std::int64_t i = 0; i < 80000; ++i) segments.push_back({16 * i, 16, 16 * i, 16, true});
  const ConstMatrix q(nullptr, DataType::bf16, 1280000, 2048, 2048);
  const ConstMatrix k(nullptr, DataType::bf16, 1280000, 512, 512);
  const Matrix out{nullptr, DataType::bf16, 1280000, 2048, 2048};
  const Matrix lse{nullptr, DataType::f32, 1280000, 32, 32};
  const Matrix dk{nullptr, DataType::f32, 1280000, 512, 512};
  EXPECT_NO_THROW(gpu->attention(shape, segments, q, k, k, false, out, lse, *gpu.stream));
  EXPECT_NO_THROW(gpu->attention_delta(shape, out, q, lse, *gpu.stream));
  EXPECT_NO_THROW(
      gpu->attention_backward(shape, segments, q, k, k, q, lse, lse, out, dk, dk, *gpu.stream));
  emulator::report("stopped here");
  EXPECT_THROW(gpu.device->synchronize(*gpu.stream), std::runtime_error);
  EXPECT_EQ(emulator::take_fault(), "stopped here");
}
#endif

}  // namespace
}  // namespace hydraulis
