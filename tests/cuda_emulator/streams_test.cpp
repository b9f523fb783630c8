#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda_emulator/toy.h"

// Work on streams that relies on an order which nothing promises.
namespace emulator {
namespace {

using testing::HasSubstr;

__global__ void fill(float* to, float value) { to[threadIdx.x] = value; }
__global__ void twice(const float* from, float* to) { to[threadIdx.x] = 2 * from[threadIdx.x]; }

struct TwoStreams : Toy {
  TwoStreams() : x(array(std::vector<float>(8, 1.0F))), y(array(8)) {
    HYDRAULIS_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  ~TwoStreams() { cudaEventDestroy(event); }
  float* x;
  float* y;
  cudaEvent_t event = nullptr;
};

void produce_and_consume(bool record, bool wait) {
  TwoStreams t;
  launch<fill>(1, 8, 0, t.stream, t.x, 3.0F);
  if (record) HYDRAULIS_CUDA_CHECK(cudaEventRecord(t.event, t.stream));
  if (wait) HYDRAULIS_CUDA_CHECK(cudaStreamWaitEvent(t.other, t.event));
  launch<twice>(1, 8, 0, t.other, t.x, t.y);
  HYDRAULIS_CUDA_CHECK(cudaStreamSynchronize(t.other));
  EXPECT_EQ(t.read(t.y, 8)[7], 6.0F);
}

TEST(Streams, AnEventOrdersThem) {
  with_seeds(9, [] { produce_and_consume(true, true); });
}

// With the shadow in whatever order they ran; without, by the result of some orders.
TEST(Streams, MissingWait) {
  int wrong = 0;
  for (int seed = 0; seed < 30; ++seed) {
    set_seed(static_cast<std::uint64_t>(seed));
    for (const bool record : {false, true}) {
      try {
        TwoStreams t;
        launch<fill>(1, 8, 0, t.stream, t.x, 3.0F);
        if (record) HYDRAULIS_CUDA_CHECK(cudaEventRecord(t.event, t.stream));
        launch<twice>(1, 8, 0, t.other, t.x, t.y);
        t.synchronize();
        if (t.read(t.y, 8)[7] != 6.0F) ++wrong;
      } catch (const std::exception&) {
        ASSERT_THAT(fault(), HasSubstr("missing dependency"));
      }
      if (kShadow) {
        ASSERT_NE(take_fault(), "") << "seed " << seed;
      }
    }
  }
  if (!kShadow) {
    EXPECT_GT(wrong, 0);
  }
}

TEST(Streams, AWaitBeforeTheRecordWaitsForNothing) {
  if (!kShadow) GTEST_SKIP() << "needs the shadow";
  EXPECT_THAT(fault_of([] {
                TwoStreams t;
                HYDRAULIS_CUDA_CHECK(cudaStreamWaitEvent(t.other, t.event));
                launch<fill>(1, 8, 0, t.stream, t.x, 3.0F);
                HYDRAULIS_CUDA_CHECK(cudaEventRecord(t.event, t.stream));
                launch<twice>(1, 8, 0, t.other, t.x, t.y);
                t.synchronize();
              }),
              HasSubstr("missing dependency"));
}

TEST(Streams, WritingWhatAnotherStreamStillReads) {
  if (!kShadow) GTEST_SKIP() << "needs the shadow";
  EXPECT_THAT(fault_of([] {
                TwoStreams t;
                launch<twice>(1, 8, 0, t.other, t.x, t.y);
                HYDRAULIS_CUDA_CHECK(cudaMemsetAsync(t.x, 0, 32, t.stream));
                t.synchronize();
              }),
              HasSubstr("missing dependency"));
}

TEST(Streams, UnorderedWorkRunsInSeveralOrders) {
  int first = 0;
  int last = 0;
  for (int seed = 0; seed < 200; ++seed) {
    set_seed(static_cast<std::uint64_t>(seed));
    TwoStreams t;
    // Only one of both is asked about.
    launch<fill>(1, 8, 0, t.stream, t.x, 3.0F);
    launch<fill>(1, 8, 0, t.other, t.y, 4.0F);
    HYDRAULIS_CUDA_CHECK(cudaStreamSynchronize(t.other));
    (cudaStreamQuery(t.stream) == cudaSuccess ? first : last)++;
    t.synchronize();
  }
  EXPECT_GT(first, 0);
  EXPECT_GT(last, 0);
}

TEST(Streams, MemoryOfAnotherStreamBeforeItIsThere) {
  const auto program = [](bool wait) {
    TwoStreams t;
    void* block = nullptr;
    HYDRAULIS_CUDA_CHECK(cudaMallocFromPoolAsync(&block, 32, t.pool, t.stream));
    HYDRAULIS_CUDA_CHECK(cudaEventRecord(t.event, t.stream));
    if (wait) HYDRAULIS_CUDA_CHECK(cudaStreamWaitEvent(t.other, t.event));
    HYDRAULIS_CUDA_CHECK(cudaMemsetAsync(block, 0, 32, t.other));
    HYDRAULIS_CUDA_CHECK(cudaEventRecord(t.event, t.other));
    HYDRAULIS_CUDA_CHECK(cudaStreamWaitEvent(t.stream, t.event));
    HYDRAULIS_CUDA_CHECK(cudaFreeAsync(block, t.stream));
    t.synchronize();
  };
  with_seeds(9, [&] { program(true); });
  EXPECT_THAT(fault_of([&] { program(false); }, 20), HasSubstr("missing dependency"));
}

TEST(Streams, ReleaseWhileAnotherStreamStillReads) {
  const auto program = [](bool wait) {
    TwoStreams t;
    void* block = nullptr;
    HYDRAULIS_CUDA_CHECK(cudaMallocFromPoolAsync(&block, 32, t.pool, t.stream));
    HYDRAULIS_CUDA_CHECK(cudaMemsetAsync(block, 0, 32, t.stream));
    HYDRAULIS_CUDA_CHECK(cudaEventRecord(t.event, t.stream));
    HYDRAULIS_CUDA_CHECK(cudaStreamWaitEvent(t.other, t.event));
    HYDRAULIS_CUDA_CHECK(cudaMemcpyAsync(t.y, block, 32, cudaMemcpyDeviceToDevice, t.other));
    HYDRAULIS_CUDA_CHECK(cudaEventRecord(t.event, t.other));
    if (wait) HYDRAULIS_CUDA_CHECK(cudaStreamWaitEvent(t.stream, t.event));
    HYDRAULIS_CUDA_CHECK(cudaFreeAsync(block, t.stream));
    t.synchronize();
  };
  with_seeds(9, [&] { program(true); });
  // Whichever comes first.
  EXPECT_THAT(fault_of([&] { program(false); }, 20),
              testing::AnyOf(HasSubstr("missing dependency"), HasSubstr("use after free"),
                             HasSubstr("not device memory")));
}

TEST(Streams, PageableMemoryIsCopiedAtOnceAndPinnedMemoryLater) {
  set_seed(0);  // runs nothing before it must
  Toy toy;
  float* x = toy.array(2);
  auto pageable = std::make_unique<float>(1.0F);
  void* pinned = nullptr;
  HYDRAULIS_CUDA_CHECK(cudaMallocHost(&pinned, 4));
  *static_cast<float*>(pinned) = 1;
  cudaMemcpyAsync(x, pageable.get(), 4, cudaMemcpyHostToDevice, toy.stream);
  cudaMemcpyAsync(x + 1, pinned, 4, cudaMemcpyHostToDevice, toy.stream);
  *pageable = 5;
  *static_cast<float*>(pinned) = 5;
  const std::vector<float> result = toy.read(x, 2);
  EXPECT_EQ(result[0], 1.0F);
  EXPECT_EQ(result[1], 5.0F);
  HYDRAULIS_CUDA_CHECK(cudaFreeHost(pinned));
}

TEST(Streams, NothingRunsAfterAFault) {
  Toy toy;
  float* x = toy.array(std::vector<float>{1});
  report("planted");
  EXPECT_EQ(cudaMemsetAsync(x, 0, 4, toy.stream), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorLaunchFailure), "planted");
  EXPECT_EQ(take_fault(), "planted");
  EXPECT_EQ(toy.read(x, 1)[0], 1.0F);
}

TEST(Streams, StreamsMustBeNamed) {
  EXPECT_EQ(cudaMemsetAsync(nullptr, 0, 4, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
}

}  // namespace
}  // namespace emulator
