#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/compute.h"
#include "kernels/cuda/device.cuh"
#include "report/table.h"

// What the benchmarks of the CUDA backend share: a GPU, random matrices that rotate so that no
// cache keeps them, times from device events, and what the machine can do at most, measured first.
namespace hydraulis {

/// How much is done: enough to count, or only what shows that it works (in the tests' emulator).
struct GpuEffort {
  bool tiny = false;
  int batches = 15;                                       ///< whose median counts
  double batch_seconds = 2e-3;                            ///< each at least
  std::int64_t rotating_bytes = std::int64_t{256} << 20;  ///< beyond every cache
};

/// A GPU with its kernels and one stream.
class Gpu {
 public:
  explicit Gpu(const GpuEffort& effort);
  Compute* operator->() const { return compute_.get(); }
  Device& device() const { return *device_; }
  Stream& stream() const { return *stream_; }
  cudaStream_t cuda_stream() const;
  const GpuEffort& effort() const { return effort_; }

  /// Median time of one call in seconds: batches of calls between two events, after a warm-up.
  /// `call` gets the number of the call, to choose its buffers.
  double seconds(const std::function<void(int)>& call) const;

  /// Host numbers, uniform in ±1/2, that matrices are filled with.
  void fill(const Matrix& matrix, bool positive = false) const;

 private:
  float batch_milliseconds(const std::function<void(int)>& call, int first, int calls) const;
  GpuEffort effort_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Compute> compute_;
  std::unique_ptr<Stream> stream_;
  std::vector<float> numbers_;
};

/// A few equal matrices of random numbers; which one a call uses goes round.
class RotatingMatrix {
 public:
  /// `sets`: see rotating_sets().
  RotatingMatrix(const Gpu& gpu, DataType type, std::int64_t rows, std::int64_t columns, int sets,
                 bool positive = false);
  Matrix operator[](int call) const {
    return matrices_[static_cast<std::size_t>(call) % matrices_.size()];
  }
  double bytes() const {
    return static_cast<double>(matrices_[0].elements() * size_of(matrices_[0].type));
  }

 private:
  std::vector<DeviceBuffer> buffers_;
  std::vector<Matrix> matrices_;
};

/// So many that together they exceed what caches hold.
int rotating_sets(const GpuEffort& effort, std::int64_t bytes_of_a_set);

/// What the machine does at most.
struct GpuCeilings {
  double copy_bytes_per_second = 0;    ///< read and written, device to device
  double matrix_flops_per_second = 0;  ///< largest of some big bf16 products by cuBLASLt
  double mma_flops_per_second = 0;     ///< mma.sync of registers alone, what attention is made of
};
GpuCeilings measure_ceilings(const Gpu& gpu);
/// The benchmark's program: `measure` makes its table. Options: --tiny, --csv FILE. Returns 2,
/// after one line, where there is no GPU or the options are wrong.
int run_gpu_benchmark(int argc, char** argv,
                      const std::function<Table(const Gpu&, const GpuCeilings&)>& measure);

}  // namespace hydraulis
