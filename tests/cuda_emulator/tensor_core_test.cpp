#include "kernels/cuda/tensor_core.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda_emulator/toy.h"

namespace emulator {
namespace {

using hydraulis::cuda::commit_copies;
using hydraulis::cuda::copy_async_16;
using hydraulis::cuda::load_matrices;
using hydraulis::cuda::mma_16x8x16;
using hydraulis::cuda::shared_address;
using hydraulis::cuda::wait_for_copies;
using testing::HasSubstr;

__nv_bfloat16 bf16(float x) { return __float2bfloat16_rn(x); }

// Every element to its place by the formulas of the PTX ISA ("Matrix fragments for mma.m16n8k16"),
// one number after another.
__global__ void product(const __nv_bfloat16* a, const __nv_bfloat16* b, float* d) {
  const unsigned group = threadIdx.x >> 2;
  const unsigned in_group = threadIdx.x % 4;
  const auto pair = [](__nv_bfloat16 low, __nv_bfloat16 high) {
    return std::uint32_t{low.bits} | std::uint32_t{high.bits} << 16;
  };
  std::uint32_t ra[4];
  for (unsigned r = 0; r < 4; ++r) {
    __nv_bfloat16 both[2];
    for (unsigned i = 2 * r; i < 2 * r + 2; ++i) {
      const bool upper_rows = i < 2 || (i >= 4 && i < 6);
      const unsigned row = upper_rows ? group : group + 8;
      const unsigned column = in_group * 2 + (i & 1U) + (i >= 4 ? 8 : 0);
      both[i & 1U] = a[row * 16 + column];
    }
    ra[r] = pair(both[0], both[1]);
  }
  std::uint32_t rb[2];
  for (unsigned r = 0; r < 2; ++r) {
    const unsigned row = in_group * 2 + 8 * r;
    rb[r] = pair(b[row * 8 + group], b[(row + 1) * 8 + group]);
  }
  float rd[4] = {1, 1, 1, 1};
  mma_16x8x16(rd, ra, rb);
  for (unsigned i = 0; i < 4; ++i) {
    d[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1U)] = rd[i];
  }
}

TEST(TensorCore, Product) {
  with_seeds(3, [] {
    std::vector<__nv_bfloat16> a;
    std::vector<__nv_bfloat16> b;
    for (int i = 0; i < 256; ++i) a.push_back(bf16(static_cast<float>(i * i % 17 - 8)));
    for (int i = 0; i < 128; ++i) b.push_back(bf16(static_cast<float>(i * 5 % 13 - 6)));
    Toy toy;
    float* d = toy.array(128);
    launch<product>(1, 32, 0, toy.stream, toy.array(a), toy.array(b), d);
    const std::vector<float> result = toy.read(d, 128);
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t j = 0; j < 8; ++j) {
        float sum = 1;
        for (std::size_t k = 0; k < 16; ++k) {
          sum += __bfloat162float(a[i * 16 + k]) * __bfloat162float(b[k * 8 + j]);
        }
        ASSERT_EQ(result[i * 8 + j], sum) << i << ", " << j;
      }
    }
  });
}

template <bool kTransposed>
__global__ void fragments(const std::uint16_t* from, std::uint32_t* to) {
  HYDRAULIS_SHARED(std::uint16_t, kept, 4 * 64);
  for (unsigned i = threadIdx.x; i < 256; i += 32) kept[i] = from[i];
  __syncthreads();
  std::uint32_t r[4];
  load_matrices<kTransposed>(r, shared_address(kept + threadIdx.x * 8));
  for (unsigned m = 0; m < 4; ++m) to[threadIdx.x * 4 + m] = r[m];
}

// Lane i holds columns 2(i % 4), 2(i % 4) + 1 of row i / 4; transposed, the same of the transpose.
TEST(TensorCore, LoadedFragments) {
  std::vector<std::uint16_t> values;
  for (int i = 0; i < 256; ++i) values.push_back(static_cast<std::uint16_t>(i * 7 + 3));
  with_seeds(3, [&] {
    Toy toy;
    const auto* x = toy.array(values);
    auto* y = toy.array<std::uint32_t>(128);
    launch<fragments<false>>(1, 32, 0, toy.stream, x, y);
    const auto plain = toy.read(y, 128);
    launch<fragments<true>>(1, 32, 0, toy.stream, x, y);
    const auto transposed = toy.read(y, 128);
    for (std::size_t lane = 0; lane < 32; ++lane) {
      for (std::size_t m = 0; m < 4; ++m) {
        for (std::size_t half = 0; half < 2; ++half) {
          const std::size_t g = lane / 4;
          const std::size_t p = lane % 4 * 2 + half;
          ASSERT_EQ(plain[lane * 4 + m] >> 16 * half & 0xFFFFU, values[m * 64 + g * 8 + p]);
          ASSERT_EQ(transposed[lane * 4 + m] >> 16 * half & 0xFFFFU, values[m * 64 + p * 8 + g]);
        }
      }
    }
  });
}

enum class Planted { nothing, no_wait, no_barrier, no_commit, overwritten };

template <Planted kPlanted>
__global__ void staged(const float* from, float* to) {
  HYDRAULIS_SHARED(float, kept, 128);
  const unsigned t = threadIdx.x;
  copy_async_16(shared_address(kept + 4 * t), from + 4 * t, t < 31);  // zeros for the last
  if (kPlanted != Planted::no_commit) commit_copies();
  if (kPlanted == Planted::overwritten) kept[4 * t] = 0;
  if (kPlanted != Planted::no_wait) wait_for_copies<0>();
  if (kPlanted != Planted::no_barrier) __syncthreads();
  for (unsigned i = 0; i < 4; ++i) to[4 * t + i] = kept[(4 * t + i + 64) % 128];
}

template <Planted kPlanted>
void run_staged() {
  Toy toy;
  float* y = toy.array(128);
  launch<staged<kPlanted>>(1, 32, 0, toy.stream, toy.array(numbers(128)), y);
  const std::vector<float> result = toy.read(y, 128);
  EXPECT_EQ(result[0], 64.0F);
  EXPECT_EQ(result[63], 0.0F);
  EXPECT_EQ(result[64], 0.0F);
  EXPECT_EQ(result[70], 6.0F);
}

TEST(TensorCore, AsynchronousCopies) {
  with_seeds(6, run_staged<Planted::nothing>);
  // A copy that never gets its wait is found with and without the shadow.
  EXPECT_THAT(fault_of(run_staged<Planted::no_commit>), HasSubstr("cp.async"));
  EXPECT_THAT(fault_of(run_staged<Planted::no_wait>), HasSubstr("cp.async"));
  if (!kShadow) return;
  EXPECT_THAT(fault_of(run_staged<Planted::overwritten>), HasSubstr("cp.async: write before"));
  EXPECT_THAT(fault_of(run_staged<Planted::no_barrier>),
              testing::AnyOf(HasSubstr("race"), HasSubstr("uninitialised"), HasSubstr("cp.async")));
}

__global__ void two_groups(const float* from, float* to) {
  HYDRAULIS_SHARED(float, kept, 8);
  copy_async_16(shared_address(kept), from, true);
  commit_copies();
  copy_async_16(shared_address(kept + 4), from + 4, true);
  commit_copies();
  wait_for_copies<1>();
  to[0] = kept[3];  // of the first group, which is there
  wait_for_copies<0>();
  to[1] = kept[7];
}

TEST(TensorCore, GroupsAreWaitedForInOrder) {
  with_seeds(2, [] {
    Toy toy;
    float* y = toy.array(2);
    launch<two_groups>(1, 1, 0, toy.stream, toy.array(numbers(8)), y);
    EXPECT_EQ(toy.read(y, 2), (std::vector<float>{3, 7}));
  });
}

__global__ void half_a_warp(float* to) {
  float d[4] = {};
  const std::uint32_t a[4] = {};
  const std::uint32_t b[2] = {};
  if (threadIdx.x < 16) mma_16x8x16(d, a, b);
  to[threadIdx.x] = d[0];
}

TEST(TensorCore, NeedsTheWholeWarp) {
  EXPECT_THAT(fault_of([] {
                Toy toy;
                launch<half_a_warp>(1, 32, 0, toy.stream, toy.array(32));
                toy.synchronize();
              }),
              HasSubstr("divergent barrier"));
}

TEST(Bf16, RoundsToTheNearestTiesToEven) {
  const auto back = [](float x) { return __bfloat162float(bf16(x)); };
  EXPECT_EQ(back(1.0F), 1.0F);
  EXPECT_EQ(back(1.00390625F), 1.0F);       // halfway between 1 and 1 + 2^-7: to even
  EXPECT_EQ(back(1.01171875F), 1.015625F);  // halfway between odd and even: up
  EXPECT_EQ(back(1.0039064F), 1.0078125F);  // just above halfway
  EXPECT_EQ(back(-1.01171875F), -1.015625F);
  EXPECT_EQ(back(3.4e38F), std::numeric_limits<float>::infinity());
  EXPECT_EQ(back(-0.0F), 0.0F);
  EXPECT_TRUE(std::signbit(back(-0.0F)));
  EXPECT_TRUE(std::isnan(back(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(back(1e-40F), __bfloat162float({bf16(1e-40F).bits}));
}

}  // namespace
}  // namespace emulator
