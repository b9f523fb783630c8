#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda_emulator/toy.h"

// Faults in memory, planted one at a time. With the address sanitizer that one ends the program at
// the fault; without, the emulator reports it.
namespace emulator {
namespace {

using testing::HasSubstr;

void expect_fault(const std::function<void()>& program, const char* emulator_says,
                  [[maybe_unused]] const char* sanitizer_says) {
  if constexpr (kShadow) {
    EXPECT_THAT(fault_of(program), HasSubstr(emulator_says));
  } else {
    EXPECT_DEATH(program(), sanitizer_says);
  }
}

__global__ void write_at(float* to, int at) { to[at] = 1; }
__global__ void read_at(const float* from, int at, float* to) { to[0] = from[at]; }

TEST(Memory, WriteWithinBounds) {
  with_seeds(3, [] {
    Toy toy;
    float* x = toy.array(10);
    launch<write_at>(1, 1, 0, toy.stream, x, 9);
    EXPECT_EQ(toy.read(x + 9, 1)[0], 1.0F);
  });
}

TEST(MemoryDeathTest, OutOfBounds) {
  expect_fault(
      [] {
        Toy toy;
        float* x = toy.array(10);
        launch<write_at>(1, 1, 0, toy.stream, x, 10);
        toy.synchronize();
      },
      "out of bounds", "heap-buffer-overflow");
  expect_fault(
      [] {
        Toy toy;
        float* x = toy.array(numbers(10));
        float* y = toy.array(1);
        launch<read_at>(1, 1, 0, toy.stream, x, -1, y);
        toy.synchronize();
      },
      "out of bounds", "heap-buffer-overflow");
}

TEST(Memory, OutOfBoundsSaysWhichKernel) {
  if (!kShadow) GTEST_SKIP() << "the address sanitizer prints a stack instead";
  const std::string fault = fault_of([] {
    Toy toy;
    launch<write_at>(1, 1, 0, toy.stream, toy.array(10), 10);
    toy.synchronize();
  });
  EXPECT_THAT(fault, HasSubstr("write_at, block (0, 0, 0), thread 0"));
}

TEST(MemoryDeathTest, UseAfterFree) {
  expect_fault(
      [] {
        Toy toy;
        void* x = nullptr;
        cudaMallocFromPoolAsync(&x, 40, toy.pool, toy.stream);
        cudaFreeAsync(x, toy.stream);
        launch<write_at>(1, 1, 0, toy.stream, static_cast<float*>(x), 3);
        toy.synchronize();
      },
      "use after free", "heap-use-after-free|use-after-poison");
}

TEST(MemoryDeathTest, HostMemoryInAKernel) {
  if (!kShadow) GTEST_SKIP() << "to the address sanitizer all memory is the program's";
  auto host = std::make_unique<float>();
  EXPECT_THAT(fault_of([&] {
                Toy toy;
                launch<write_at>(1, 1, 0, toy.stream, host.get(), 0);
                toy.synchronize();
              }),
              HasSubstr("not device memory"));
}

TEST(Memory, CopiesAreCheckedToo) {
  EXPECT_THAT(fault_of([] {
                Toy toy;
                float* x = toy.array(10);
                cudaMemsetAsync(x, 0, 44, toy.stream);
                toy.synchronize();
              }),
              HasSubstr("out of bounds"));
  EXPECT_THAT(fault_of([] {
                Toy toy;
                float* x = toy.array(10);
                float y[11];
                cudaMemcpyAsync(y, x, 44, cudaMemcpyDeviceToHost, toy.stream);
                toy.synchronize();
              }),
              HasSubstr("out of bounds"));
}

TEST(Memory, FreedTwice) {
  EXPECT_THAT(fault_of([] {
                Toy toy;
                void* x = nullptr;
                cudaMallocFromPoolAsync(&x, 40, toy.pool, toy.stream);
                cudaFreeAsync(x, toy.stream);
                cudaFreeAsync(x, toy.stream);
                toy.synchronize();
              }),
              HasSubstr("not allocated"));
}

TEST(Memory, UnwrittenMemoryIsNoNumber) {
  Toy toy;
  for (const float value : toy.read(toy.array(5), 5)) EXPECT_TRUE(std::isnan(value));
}

__global__ void copy_one(const float* from, float* to) { to[threadIdx.x] = from[threadIdx.x]; }

TEST(Memory, ReadsOfUnwrittenMemoryAreFound) {
  const auto program = [] {
    Toy toy;
    float* x = toy.array(2);
    float* y = toy.array(2);
    cudaMemsetAsync(x, 0, 4, toy.stream);  // the second number stays unwritten
    launch<copy_one>(1, 2, 0, toy.stream, x, y);
    toy.synchronize();
    if (!kShadow) {
      EXPECT_TRUE(std::isnan(toy.read(y, 2)[1]));  // shows in the result
    }
  };
  if (kShadow) {
    EXPECT_THAT(fault_of(program), HasSubstr("uninitialised"));
  } else {
    program();
  }
}

TEST(Memory, CopiedMemoryKeepsWhatIsUnwritten) {
  if (!kShadow) GTEST_SKIP() << "needs the shadow";
  EXPECT_THAT(fault_of([] {
                Toy toy;
                float* x = toy.array(2);
                float* y = toy.array(2);
                cudaMemcpyAsync(y, x, 8, cudaMemcpyDeviceToDevice, toy.stream);
                launch<copy_one>(1, 2, 0, toy.stream, y, x);
                toy.synchronize();
              }),
              HasSubstr("uninitialised"));
}

__global__ void misaligned(float* x) {
  *reinterpret_cast<float*>(reinterpret_cast<char*>(x) + 2) = 1;
}

TEST(Memory, MisalignedAccess) {
  if (!kShadow) GTEST_SKIP() << "needs a check before every access";
  EXPECT_THAT(fault_of([] {
                Toy toy;
                launch<misaligned>(1, 1, 0, toy.stream, toy.array(2));
                toy.synchronize();
              }),
              HasSubstr("misaligned"));
}

TEST(Memory, DeviceOfLimitedSize) {
  const std::size_t before = device_bytes();
  set_device_bytes(device_bytes_in_use() + 1000);
  {
    Toy toy;
    void* x = nullptr;
    EXPECT_EQ(cudaMallocFromPoolAsync(&x, 1001, toy.pool, toy.stream), cudaErrorMemoryAllocation);
    ASSERT_EQ(cudaMallocFromPoolAsync(&x, 1000, toy.pool, toy.stream), cudaSuccess);
    ASSERT_EQ(cudaFreeAsync(x, toy.stream), cudaSuccess);
    // The release is queued before the request: the request waits for it.
    ASSERT_EQ(cudaMallocFromPoolAsync(&x, 600, toy.pool, toy.stream), cudaSuccess);
    ASSERT_EQ(cudaFreeAsync(x, toy.stream), cudaSuccess);
  }
  set_device_bytes(before);
}

}  // namespace
}  // namespace emulator
