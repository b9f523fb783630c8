#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/cuda/check.cuh"
#include "tests/kernels/cuda_fixture.h"

namespace hydraulis {
namespace {

using testing::HasSubstr;

TEST(CudaDevice, CountsItsMemory) {
  const CudaBackend gpu;
  EXPECT_EQ(gpu.device->allocate(0), nullptr);
  gpu.device->release(nullptr);
  void* a = gpu.device->allocate(1000);
  void* b = gpu.device->allocate(500);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 64, 0U);
  EXPECT_EQ(gpu.device->memory().allocated, 1500);
  gpu.device->release(a);
  EXPECT_EQ(gpu.device->memory().allocated, 500);
  EXPECT_EQ(gpu.device->memory().peak, 1500);
  gpu.device->reset_peak();
  EXPECT_EQ(gpu.device->memory().peak, 500);
  gpu.device->release(b);
  gpu.device->synchronize(*gpu.stream);
}

TEST(CudaDevice, RefusesWhatDoesNotFitAndSaysWhatWould) {
  const auto device = cuda::make_device(0, 10000);
  EXPECT_EQ(device->memory().limit, 10000);
  void* a = device->allocate(6000);
  try {
    device->allocate(5000);
    FAIL() << "more than the limit";
  } catch (const InfeasibleError& e) {
    EXPECT_THAT(e.what(), HasSubstr("5000 bytes asked, 6000 in use"));
    EXPECT_THAT(e.what(), HasSubstr("at most 4000 more fit"));
  }
  device->release(a);
  device->release(device->allocate(10000));
  EXPECT_THROW(device->allocate(-1), InfeasibleError);
}

#ifdef HYDRAULIS_CUDA_EMULATOR
TEST(CudaDevice, RefusesWhatTheMachineDoesNotHave) {
  const std::size_t before = emulator::device_bytes();
  const auto device = cuda::make_device(0);
  emulator::set_device_bytes(emulator::device_bytes_in_use() + 4096);
  EXPECT_THROW(device->allocate(5000), InfeasibleError);
  device->release(device->allocate(4096));
  emulator::set_device_bytes(before);
}
#endif

TEST(CudaDevice, ThereAreOnlySoMany) {
  EXPECT_THROW(cuda::make_device(1000), InputError);
  EXPECT_THROW(cuda::make_device(-1), InputError);
}

TEST(CudaDevice, CopiesAndZerosInStreamOrder) {
  for (std::uint64_t seed = 0; seed < 9; ++seed) {
    const CudaBackend gpu(seed);
    DeviceBuffer a(*gpu.device, 1000);
    DeviceBuffer b(*gpu.device, 1000);
    std::vector<char> text(1000, 'x');
    std::vector<char> back(1000);
    gpu.device->copy_to_device(a.data(), text.data(), 1000, *gpu.stream);
    std::fill(text.begin(), text.end(), 'y');  // the host's memory is free again
    gpu.device->zero(b.data(), 1000, *gpu.stream);
    gpu.device->copy(b.data(), a.data(), 999, *gpu.stream);
    gpu.device->copy(nullptr, nullptr, 0, *gpu.stream);
    gpu.device->copy_to_host(back.data(), b.data(), 1000, *gpu.stream);
    const auto event = gpu.device->record(*gpu.stream);
    gpu.device->synchronize(*gpu.stream);
    EXPECT_TRUE(event->done());
    EXPECT_EQ(back[998], 'x');
    EXPECT_EQ(back[999], '\0');
    const auto later = gpu.device->record(*gpu.stream);
    while (!later->done()) {
    }
    EXPECT_GE(later->seconds(), event->seconds());
  }
}

// More than one piece of page-locked memory holds, on a stream that is slower than the host.
TEST(CudaDevice, LargeCopiesGoThroughPieces) {
  const CudaBackend gpu(0);
  constexpr std::int64_t kBytes = (std::int64_t{35} << 20) + 5;
  DeviceBuffer a(*gpu.device, kBytes);
  std::vector<char> text(kBytes);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 >> 7);
  const std::vector<char> kept = text;
  gpu.device->copy_to_device(a.data(), text.data(), kBytes, *gpu.stream);
  std::fill(text.begin(), text.end(), '\0');
  gpu.device->copy_to_host(text.data(), a.data(), kBytes, *gpu.stream);
  gpu.device->synchronize(*gpu.stream);
  EXPECT_EQ(text, kept);
}

TEST(CudaDevice, EventsOrderStreams) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const CudaBackend gpu(seed);
    const auto other = gpu.device->make_stream();
    DeviceBuffer a(*gpu.device, 8);
    DeviceBuffer b(*gpu.device, 8);
    const double value = 3;
    double back = 0;
    gpu.device->copy_to_device(a.data(), &value, 8, *gpu.stream);
    gpu.device->wait(*other, gpu.device->record(*gpu.stream));
    gpu.device->copy(b.data(), a.data(), 8, *other);
    gpu.device->wait(*gpu.stream, gpu.device->record(*other));
    gpu.device->copy_to_host(&back, b.data(), 8, *gpu.stream);
    gpu.device->synchronize(*gpu.stream);
    EXPECT_EQ(back, 3);
  }
  EXPECT_EQ(emulator::take_fault(), "");
}

#ifdef HYDRAULIS_CUDA_EMULATOR
TEST(CudaDevice, AMissingEventIsFound) {
  const std::string fault = emulator::fault_of([] {
    const CudaBackend gpu(0);
    const auto other = gpu.device->make_stream();
    DeviceBuffer a(*gpu.device, 8);
    DeviceBuffer b(*gpu.device, 8);
    const double value = 3;
    gpu.device->zero(a.data(), 8, *other);  // both blocks are known to be there
    gpu.device->zero(b.data(), 8, *other);
    gpu.device->wait(*gpu.stream, gpu.device->record(*other));
    gpu.device->copy_to_device(a.data(), &value, 8, *gpu.stream);
    gpu.device->copy(b.data(), a.data(), 8, *other);  // without waiting
    gpu.device->synchronize(*gpu.stream);
    gpu.device->synchronize(*other);
  });
  if (emulator::kShadow) {
    EXPECT_THAT(fault, HasSubstr("missing dependency"));
  }
}
#endif

// A block goes back while another stream still works on it, and the next block takes its place.
TEST(CudaDevice, ReleaseNeedsNoWaiting) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const CudaBackend gpu(seed);
    const auto other = gpu.device->make_stream();
    double back[20] = {};
    for (int i = 0; i < 20; ++i) {
      const DeviceBuffer a(*gpu.device, 8);
      const double value = i;
      gpu.device->copy_to_device(a.data(), &value, 8, *other);
      gpu.device->copy_to_host(&back[i], a.data(), 8, *other);
    }
    gpu.device->synchronize(*other);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(back[i], i);
  }
  EXPECT_EQ(emulator::take_fault(), "");
}

#ifdef HYDRAULIS_CUDA_EMULATOR
TEST(CudaDevice, AFailedKernelIsToldByWhoWaits) {
  if (!emulator::kShadow) GTEST_SKIP() << "the address sanitizer would end the program";
  const CudaBackend gpu(0);
  DeviceBuffer a(*gpu.device, 64);
  // One row more than the block holds.
  const Matrix wrong{a.data(), DataType::f32, 1, 17, 17};
  gpu->add(wrong, wrong, wrong, *gpu.stream);
  EXPECT_THROW(gpu.device->synchronize(*gpu.stream), cuda::CudaError);
  EXPECT_NE(emulator::take_fault(), "");
}
#endif

}  // namespace
}  // namespace hydraulis
