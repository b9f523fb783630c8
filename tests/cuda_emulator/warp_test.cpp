#include <gtest/gtest.h>

#include "tests/cuda_emulator/toy.h"

namespace emulator {
namespace {

constexpr std::uint32_t kAll = 0xFFFFFFFFU;

__global__ void shuffles(int* to) {
  const int t = static_cast<int>(threadIdx.x);
  int* own = to + t * 8;
  own[0] = __shfl_sync(kAll, t, 5);
  own[1] = __shfl_xor_sync(kAll, t, 16);
  own[2] = __shfl_down_sync(kAll, t, 3);
  own[3] = __shfl_up_sync(kAll, t, 2);
  own[4] = __shfl_sync(kAll, t, 1, 8);
  own[5] = __shfl_down_sync(kAll, t, 1, 8);
  own[6] = static_cast<int>(__ballot_sync(kAll, t % 32 < 3 ? 1 : 0));
  own[7] = __all_sync(kAll, t < 40 ? 1 : 0) + 2 * __any_sync(kAll, t == 40 ? 1 : 0);
}

// By hand, from the programming guide: a lane whose source lies outside its segment keeps its own.
TEST(Warp, ShufflesAndVotes) {
  with_seeds(6, [] {
    Toy toy;
    int* x = toy.array<int>(64 * 8);
    launch<shuffles>(1, 64, 0, toy.stream, x);
    const std::vector<int> all = toy.read(x, 64 * 8);
    for (int t = 0; t < 64; ++t) {
      const int* own = all.data() + t * 8;
      const int warp = t / 32 * 32;
      const int lane = t % 32;
      ASSERT_EQ(own[0], warp + 5);
      ASSERT_EQ(own[1], warp + (lane < 16 ? lane + 16 : lane - 16));
      ASSERT_EQ(own[2], lane < 29 ? t + 3 : t);
      ASSERT_EQ(own[3], lane >= 2 ? t - 2 : t);
      ASSERT_EQ(own[4], t / 8 * 8 + 1);
      ASSERT_EQ(own[5], t % 8 < 7 ? t + 1 : t);
      ASSERT_EQ(own[6], 7);
      ASSERT_EQ(own[7], warp == 0 ? 1 : 2);
    }
  });
}

__global__ void half_a_warp(int* to) {
  const int t = static_cast<int>(threadIdx.x);
  if (t < 16) {
    to[t] = __shfl_sync(0x0000FFFFU, t, 15);
  } else {
    to[t] = __shfl_sync(0xFFFF0000U, t, 31);
  }
}

TEST(Warp, PartsOfAWarp) {
  with_seeds(4, [] {
    Toy toy;
    int* x = toy.array<int>(32);
    launch<half_a_warp>(1, 32, 0, toy.stream, x);
    const std::vector<int> all = toy.read(x, 32);
    EXPECT_EQ(all[3], 15);
    EXPECT_EQ(all[20], 31);
  });
}

__global__ void indices(int* to) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  to[block * 24 + thread] = static_cast<int>(block * 24 + thread);
}

TEST(Warp, EveryThreadOfEveryBlockRunsOnce) {
  with_seeds(6, [] {
    Toy toy;
    int* x = toy.array<int>(30 * 24);
    launch<indices>(dim3(5, 3, 2), dim3(4, 3, 2), 0, toy.stream, x);
    const std::vector<int> all = toy.read(x, 30 * 24);
    for (int i = 0; i < 30 * 24; ++i) ASSERT_EQ(all[static_cast<std::size_t>(i)], i);
  });
}

TEST(Warp, LaunchesBeyondTheDevicesLimitsAreRefused) {
  Toy toy;
  int* x = toy.array<int>(1);
  EXPECT_THROW(launch<indices>(dim3(1, 65536), 1, 0, toy.stream, x), std::runtime_error);
  EXPECT_THROW(launch<indices>(dim3(1, 1, 65536), 1, 0, toy.stream, x), std::runtime_error);
  EXPECT_THROW(launch<indices>(1, 1025, 0, toy.stream, x), std::runtime_error);
  EXPECT_THROW(launch<indices>(1, dim3(32, 33), 0, toy.stream, x), std::runtime_error);
  EXPECT_THROW(launch<indices>(0, 1, 0, toy.stream, x), std::runtime_error);
  toy.synchronize();
}

}  // namespace
}  // namespace emulator
