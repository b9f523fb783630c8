// Faults planted in the backend's own kernels, as they stand: a barrier, a wait, an event, a bounds
// check left out. The emulator must find each.

#ifdef HYDRAULIS_CUDA_EMULATOR

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/optimizer.cuh"
#include "tests/cuda_emulator/omissions.h"
#include "tests/kernels/cuda_fixture.h"

namespace hydraulis {
namespace {

using emulator::Omission;
using testing::AnyOf;
using testing::HasSubstr;

class CudaPlanted : public testing::Test {
 protected:
  void SetUp() override {
    if (!emulator::kShadow) GTEST_SKIP() << "needs the shadow";
  }

  /// The program is right as it stands; with the n-th left out, a fault is found.
  static void expect_missed(Omission what, std::initializer_list<unsigned> numbers,
                            const std::function<void()>& program) {
    program();
    ASSERT_EQ(emulator::take_fault(), "");
    for (const unsigned number : numbers) {
      emulator::leave_out(what, number);
      const std::string fault = emulator::fault_of(program, 1);
      emulator::leave_out(Omission::none);
      EXPECT_THAT(fault, AnyOf(HasSubstr("race"), HasSubstr("uninitialised"), HasSubstr("cp.async"),
                               HasSubstr("missing dependency"), HasSubstr("use after free")))
          << "number " << number;
    }
  }

  static void attention(int dim, bool backward) {
    const CudaBackend gpu;
    const AttentionShape shape{1, 1, dim, 0.1};
    const std::vector<AttentionSegment> segments = {{0, 150, 0, 150, true}};
    Random random(1);
    DeviceMatrix x(gpu, DataType::bf16, 150, dim);
    DeviceMatrix out(gpu, DataType::f32, 150, dim);
    DeviceMatrix lse(gpu, DataType::f32, 150, 1);
    DeviceMatrix delta(gpu, DataType::f32, 150, 1);
    DeviceMatrix dq(gpu, DataType::f32, 150, dim);
    DeviceMatrix dk(gpu, DataType::f32, 150, dim);
    DeviceMatrix dv(gpu, DataType::f32, 150, dim);
    x.set(random);
    for (DeviceMatrix* m : {&lse, &delta, &dq, &dk, &dv}) m->set(0.5);
    if (backward) {
      gpu->attention_backward(shape, segments, x, x, x, x, lse, delta, dq, dk, dv, *gpu.stream);
    } else {
      gpu->attention(shape, segments, x, x, x, false, out, lse, *gpu.stream);
    }
    gpu.device->synchronize(*gpu.stream);
  }

  static void rms_norm(bool backward) {
    const CudaBackend gpu;
    Random random(1);
    DeviceMatrix x(gpu, DataType::bf16, 20, 2048);
    DeviceMatrix weight(gpu, DataType::bf16, 1, 2048);
    DeviceMatrix y(gpu, DataType::bf16, 20, 2048);
    DeviceMatrix inverse(gpu, DataType::f32, 20, 1);
    DeviceMatrix dweight(gpu, DataType::f32, 1, 2048);
    x.set(random);
    weight.set(random);
    inverse.set(1);
    dweight.set(0);
    if (backward) {
      gpu->rms_norm_backward(x, x, weight, inverse, false, y, dweight, *gpu.stream);
    } else {
      gpu->rms_norm(x, weight, 1e-5, y, inverse, *gpu.stream);
    }
    gpu.device->synchronize(*gpu.stream);
  }
};

// Both barriers of each of the first two tiles of keys.
TEST_F(CudaPlanted, BarriersOfAttention) {
  expect_missed(Omission::barrier, {0, 1, 2, 3}, [] { attention(64, false); });
  expect_missed(Omission::barrier, {0, 1, 2, 3}, [] { attention(128, false); });
}

// All three of the first tile, in whichever of both kernels misses it first.
TEST_F(CudaPlanted, BarriersOfAttentionBackward) {
  expect_missed(Omission::barrier, {0, 1, 2}, [] { attention(64, true); });
}

TEST_F(CudaPlanted, WaitsForCopies) {
  expect_missed(Omission::copy_wait, {0, 1, 2}, [] { attention(64, false); });
  expect_missed(Omission::copy_wait, {0}, [] { attention(128, true); });
}

TEST_F(CudaPlanted, BarriersOfSumsOverRows) {
  expect_missed(Omission::barrier, {0}, [] { rms_norm(false); });
  expect_missed(Omission::barrier, {0, 1}, [] { rms_norm(true); });
}

// Of the sum over a piece, and of that over a stretch.
TEST_F(CudaPlanted, BarriersOfTheOptimizersSums) {
  expect_missed(Omission::barrier, {0}, [] {
    const CudaBackend gpu;
    Random random(1);
    DeviceMatrix x(gpu, DataType::f32, 1, 3000);
    x.set(random);
    const std::vector<OptimizerStretch> stretches = {{0, 1000}, {1000, 2000}};
    std::vector<double> sums(2);
    gpu->sum_squares(stretches, x, sums, *gpu.stream);
  });
}

TEST_F(CudaPlanted, EventsBetweenStreams) {
  // Of the wait for the block's allocation, and of the one before its release.
  expect_missed(Omission::event_wait, {0, 1}, [] {
    const CudaBackend gpu(0);
    const auto other = gpu.device->make_stream();
    {
      const DeviceBuffer block(*gpu.device, 64);
      gpu.device->zero(block.data(), 64, *other);
    }
    gpu.device->synchronize(*gpu.stream);
    gpu.device->synchronize(*other);
  });
}

// Segments that end behind their matrices get to the kernel only past the checks of its arguments.
TEST_F(CudaPlanted, BoundsOfSegments) {
  const auto program = [](std::int64_t keys) {
    const CudaBackend gpu;
    auto& device = static_cast<cuda::CudaDevice&>(*gpu.device);
    const AttentionShape shape{1, 1, 64, 0.1};
    const std::vector<AttentionSegment> segments = {{0, 20, 0, keys, false}};
    const auto tiles = cuda::query_tiles(segments, cuda::attention_tile_rows());
    Random random(1);
    DeviceMatrix x(gpu, DataType::bf16, 30, 64, 0);
    DeviceMatrix out(gpu, DataType::f32, 20, 64);
    DeviceMatrix lse(gpu, DataType::f32, 20, 1);
    x.set(random);
    const auto bytes = static_cast<std::int64_t>(tiles.size() * sizeof tiles[0]);
    const DeviceBuffer uploaded(device, bytes);
    device.copy_to_device(uploaded.data(), tiles.data(), bytes, *gpu.stream);
    cuda::attention(shape, {static_cast<const cuda::AttentionTile*>(uploaded.data()), 1}, x, x, x,
                    false, out, lse, device.use(*gpu.stream, {}));
    device.synchronize(*gpu.stream);
  };
  program(30);
  ASSERT_EQ(emulator::take_fault(), "");
  EXPECT_THAT(emulator::fault_of([&] { program(31); }), HasSubstr("out of bounds"));
}

// As are pieces of tensors.
TEST_F(CudaPlanted, BoundsOfTheOptimizersStretches) {
  const auto program = [](std::int64_t count) {
    const CudaBackend gpu;
    auto& device = static_cast<cuda::CudaDevice&>(*gpu.device);
    DeviceMatrix x(gpu, DataType::f32, 1, 1003, 0);
    x.set(1);
    const std::vector<OptimizerStretch> stretches = {{1, 500}, {501, count}};
    const cuda::OptimizerPieces pieces = cuda::optimizer_pieces(stretches);
    const std::vector<float> factors(2, 0.5F);
    const auto upload = [&](const void* from, std::size_t bytes) {
      DeviceBuffer there(device, static_cast<std::int64_t>(bytes));
      device.copy_to_device(there.data(), from, there.bytes(), *gpu.stream);
      return there;
    };
    const DeviceBuffer list =
        upload(pieces.pieces.data(), pieces.pieces.size() * sizeof pieces.pieces[0]);
    const DeviceBuffer ends = upload(pieces.ends.data(), pieces.ends.size() * 8);
    const DeviceBuffer scales = upload(factors.data(), factors.size() * 4);
    cuda::add_scaled({static_cast<const cuda::OptimizerPieces::Piece*>(list.data()),
                      static_cast<std::int64_t>(pieces.pieces.size()),
                      static_cast<const std::int64_t*>(ends.data()), 2,
                      static_cast<const float*>(scales.data())},
                     x, x, device.use(*gpu.stream, {}));
    device.synchronize(*gpu.stream);
  };
  program(502);
  ASSERT_EQ(emulator::take_fault(), "");
  EXPECT_THAT(emulator::fault_of([&] { program(503); }), HasSubstr("out of bounds"));
}

}  // namespace
}  // namespace hydraulis

#endif
