#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda_emulator/toy.h"

// Threads that touch the same place without a barrier between, and barriers that not all reach.
namespace emulator {
namespace {

using testing::HasSubstr;

template <bool kBarrier>
__global__ void reverse(const float* from, float* to) {
  HYDRAULIS_SHARED(float, kept, 64);
  kept[threadIdx.x] = from[threadIdx.x];
  if (kBarrier) __syncthreads();
  to[threadIdx.x] = kept[63 - threadIdx.x];
}

template <bool kBarrier>
void run_reverse() {
  Toy toy;
  float* y = toy.array(64);
  launch<reverse<kBarrier>>(1, 64, 0, toy.stream, toy.array(numbers(64)), y);
  const std::vector<float> result = toy.read(y, 64);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(result[i], static_cast<float>(63 - i));
}

TEST(Races, NoneWithABarrier) { with_seeds(6, run_reverse<true>); }

TEST(Races, SharedMemoryWithoutABarrier) {
  if (!kShadow) GTEST_SKIP() << "needs the shadow";
  Toy toy;
  float* x = toy.array(numbers(64));
  float* y = toy.array(64);
  // Whoever comes first: the write after the read, or the read of what is not there yet.
  EXPECT_THAT(fault_of([&] {
                launch<reverse<false>>(1, 64, 0, toy.stream, x, y);
                toy.synchronize();
              }),
              testing::AnyOf(HasSubstr("race"), HasSubstr("uninitialised")));
}

template <bool kSecondBarrier>
__global__ void rotate_twice(const float* from, float* to) {
  HYDRAULIS_SHARED(float, kept, 64);
  const unsigned t = threadIdx.x;
  float value = from[t];
  for (int round = 0; round < 2; ++round) {
    kept[t] = value;
    __syncthreads();
    value = kept[(t + 1) % 64];
    if (kSecondBarrier) __syncthreads();  // before the next round writes
  }
  to[t] = value;
}

TEST(Races, WriteBeforeOthersHaveRead) {
  with_seeds(4, [] {
    Toy toy;
    float* y = toy.array(64);
    launch<rotate_twice<true>>(1, 64, 0, toy.stream, toy.array(numbers(64)), y);
    EXPECT_EQ(toy.read(y, 64)[5], 7.0F);
  });
  if (!kShadow) return;
  EXPECT_THAT(fault_of([] {
                Toy toy;
                launch<rotate_twice<false>>(1, 64, 0, toy.stream, toy.array(numbers(64)),
                                            toy.array(64));
                toy.synchronize();
              }),
              HasSubstr("race: write"));
}

template <bool kSync>
__global__ void neighbours(const float* from, float* to) {
  HYDRAULIS_SHARED(float, kept, 64);
  const unsigned t = threadIdx.x;
  kept[t] = from[t];
  if (kSync) __syncwarp();
  to[t] = kept[t ^ 1U];
}

template <bool kSync>
void run_neighbours() {
  Toy toy;
  float* y = toy.array(64);
  launch<neighbours<kSync>>(1, 64, 0, toy.stream, toy.array(numbers(64)), y);
  EXPECT_EQ(toy.read(y, 64)[6], 7.0F);
}

TEST(Races, WarpsAreOrderedBySyncwarpAlone) {
  with_seeds(6, run_neighbours<true>);
  if (!kShadow) return;
  EXPECT_THAT(fault_of(run_neighbours<false>),
              testing::AnyOf(HasSubstr("race"), HasSubstr("uninitialised")));
}

__global__ void across_warps(const float* from, float* to) {
  HYDRAULIS_SHARED(float, kept, 64);
  const unsigned t = threadIdx.x;
  kept[t] = from[t];
  __syncwarp();
  to[t] = kept[(t + 32) % 64];
}

TEST(Races, SyncwarpDoesNotOrderWarps) {
  if (!kShadow) GTEST_SKIP() << "needs the shadow";
  EXPECT_THAT(fault_of([] {
                Toy toy;
                launch<across_warps>(1, 64, 0, toy.stream, toy.array(numbers(64)), toy.array(64));
                toy.synchronize();
              }),
              testing::AnyOf(HasSubstr("race"), HasSubstr("uninitialised")));
}

__global__ void sum_plainly(float* sum) { *sum += 1; }
__global__ void sum_atomically(float* sum) { atomicAdd(sum, 1.0F); }

TEST(Races, BlocksNeedAtomics) {
  with_seeds(3, [] {
    Toy toy;
    float* sum = toy.array(std::vector<float>{0});
    launch<sum_atomically>(dim3(3, 2, 2), 40, 0, toy.stream, sum);
    EXPECT_EQ(toy.read(sum, 1)[0], 480.0F);
  });
  if (!kShadow) return;
  EXPECT_THAT(fault_of([] {
                Toy toy;
                launch<sum_plainly>(2, 1, 0, toy.stream, toy.array(std::vector<float>{0}));
                toy.synchronize();
              }),
              HasSubstr("of another block"));
}

__global__ void shared_past_its_end(float* to) {
  HYDRAULIS_SHARED(float, kept, 8);
  kept[threadIdx.x] = 1;
  if (threadIdx.x == 0) *to = kept[0];
}

TEST(RacesDeathTest, SharedMemoryPastItsEnd) {
  const auto program = [](unsigned threads) {
    Toy toy;
    launch<shared_past_its_end>(1, threads, 0, toy.stream, toy.array(1));
    toy.synchronize();
  };
  with_seeds(2, [&] { program(8); });
  if (kShadow) {
    EXPECT_THAT(fault_of([&] { program(9); }), HasSubstr("out of bounds"));
  } else {
    EXPECT_DEATH(program(9), "use-after-poison|heap-buffer-overflow");
  }
}

__global__ void dynamic_memory(float* to) {
  HYDRAULIS_DYNAMIC_SHARED(memory);
  auto* kept = reinterpret_cast<float*>(memory);
  kept[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();
  to[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}

TEST(Races, DynamicSharedMemory) {
  with_seeds(3, [] {
    Toy toy;
    float* y = toy.array(40);
    launch<dynamic_memory>(1, 40, 160, toy.stream, y);
    EXPECT_EQ(toy.read(y, 40)[0], 39.0F);
  });
  Toy toy;
  float* y = toy.array(40);
  EXPECT_THROW(launch<dynamic_memory>(1, 40, 50000, toy.stream, y), std::runtime_error);
  hydraulis::cuda::allow_shared_bytes<dynamic_memory>(50000);
  launch<dynamic_memory>(1, 40, 50000, toy.stream, y);
  toy.synchronize();
}

__global__ void some_leave(float* to) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  to[threadIdx.x] = 1;
}

__global__ void two_barriers(float* to) {
  if (threadIdx.x < 32) {
    __syncthreads();
    to[threadIdx.x] = 1;
  } else {
    __syncthreads();
  }
}

__global__ void some_shuffle(float* to) {
  float value = 1;
  if (threadIdx.x < 16) value = __shfl_xor_sync(0xFFFFFFFFU, value, 1);
  to[threadIdx.x] = value;
}

__global__ void barrier_and_shuffle(float* to) {
  float value = 1;
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    value = __shfl_xor_sync(0xFFFFFFFFU, value, 1);
  }
  to[threadIdx.x] = value;
}

template <auto Kernel>
std::string fault_with_64() {
  return fault_of([] {
    Toy toy;
    launch<Kernel>(1, 64, 0, toy.stream, toy.array(64));
    toy.synchronize();
  });
}

TEST(Barriers, SomeThreadsHaveLeft) {
  const std::string fault = fault_with_64<some_leave>();
  EXPECT_THAT(fault, HasSubstr("divergent barrier"));
  EXPECT_THAT(fault, HasSubstr("races_test.cpp"));  // and where the others wait
}
TEST(Barriers, SomeWaitElsewhere) {
  EXPECT_THAT(fault_with_64<two_barriers>(), HasSubstr("divergent barrier"));
  EXPECT_THAT(fault_with_64<barrier_and_shuffle>(), HasSubstr("divergent barrier"));
}
TEST(Barriers, LanesThatDoNotCome) {
  EXPECT_THAT(fault_with_64<some_shuffle>(), HasSubstr("divergent barrier"));
}

}  // namespace
}  // namespace emulator
