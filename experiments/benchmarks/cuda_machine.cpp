#include "experiments/benchmarks/cuda_machine.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/random.h"
#include "experiments/benchmarks/cuda_mma.cuh"
#include "kernels/cuda/device.h"

namespace hydraulis {

namespace {

cudaStream_t stream_of(Stream& stream) {
  return static_cast<cuda::CudaStream&>(stream).handle()->stream;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

}  // namespace

Gpu::Gpu(const GpuEffort& effort)
    : effort_(effort),
      device_(cuda::make_device(0)),
      compute_(cuda::make_compute(*device_)),
      stream_(device_->make_stream()),
      numbers_(effort.tiny ? 1 << 12 : 1 << 22) {
  Random random(1);
  for (float& x : numbers_) x = static_cast<float>(random.uniform() - 0.5);
}

cudaStream_t Gpu::cuda_stream() const { return stream_of(*stream_); }

float Gpu::batch_milliseconds(const std::function<void(int)>& call, int first, int calls) const {
  const cuda::EventHandle begin(cudaEventDefault);
  const cuda::EventHandle end(cudaEventDefault);
  HYDRAULIS_CUDA_CHECK(cudaEventRecord(begin.get(), cuda_stream()));
  for (int i = 0; i < calls; ++i) call(first + i);
  HYDRAULIS_CUDA_CHECK(cudaEventRecord(end.get(), cuda_stream()));
  device_->synchronize(*stream_);
  float milliseconds = 0;
  HYDRAULIS_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
  return milliseconds;
}

double Gpu::seconds(const std::function<void(int)>& call) const {
  int calls = 1;
  int done = 0;
  if (!effort_.tiny) {
    // Doubles the batch until it is long enough; clocks and caches warm up meanwhile.
    while (batch_milliseconds(call, done, calls) < 1e3 * effort_.batch_seconds && calls < 4096) {
      done += calls;
      calls *= 2;
    }
    batch_milliseconds(call, done, calls);
  }
  std::vector<double> times;
  for (int batch = 0; batch < (effort_.tiny ? 1 : effort_.batches); ++batch) {
    times.push_back(1e-3 * batch_milliseconds(call, done, calls) / calls);
    done += calls;
  }
  return median(times);
}

void Gpu::fill(const Matrix& matrix, bool positive) const {
  const auto piece = static_cast<std::int64_t>(numbers_.size());
  std::vector<char> bytes(
      static_cast<std::size_t>(std::min(piece, matrix.elements()) * size_of(matrix.type)));
  for (std::size_t i = 0; i < bytes.size() / static_cast<std::size_t>(size_of(matrix.type)); ++i) {
    const float value = positive ? std::abs(numbers_[i]) : numbers_[i];
    if (matrix.type == DataType::f32) {
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    } else {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, 4);
      const auto half = static_cast<std::uint16_t>(bits >> 16);
      std::memcpy(bytes.data() + 2 * i, &half, 2);
    }
  }
  for (std::int64_t first = 0; first < matrix.elements(); first += piece) {
    const std::int64_t count = std::min(piece, matrix.elements() - first);
    device_->copy_to_device(static_cast<char*>(matrix.data) + first * size_of(matrix.type),
                            bytes.data(), count * size_of(matrix.type), *stream_);
  }
}

RotatingMatrix::RotatingMatrix(const Gpu& gpu, DataType type, std::int64_t rows,
                               std::int64_t columns, int sets, bool positive) {
  for (int i = 0; i < sets; ++i) {
    buffers_.emplace_back(gpu.device(), rows * columns * size_of(type));
    matrices_.push_back({buffers_.back().data(), type, rows, columns, columns});
    gpu.fill(matrices_.back(), positive);
  }
}

int rotating_sets(const GpuEffort& effort, std::int64_t bytes_of_a_set) {
  if (effort.tiny) return 2;
  return static_cast<int>(std::clamp<std::int64_t>(
      effort.rotating_bytes / std::max<std::int64_t>(bytes_of_a_set, 1) + 1, 2, 64));
}

GpuCeilings measure_ceilings(const Gpu& gpu) {
  GpuCeilings ceilings;
  {
    const std::int64_t bytes = gpu.effort().tiny ? 1 << 12 : 1 << 30;
    const RotatingMatrix from(gpu, DataType::f32, 1, bytes / 4, 1);
    const RotatingMatrix to(gpu, DataType::f32, 1, bytes / 4, 1);
    const double seconds =
        gpu.seconds([&](int) { gpu.device().copy(to[0].data, from[0].data, bytes, gpu.stream()); });
    ceilings.copy_bytes_per_second = 2 * static_cast<double>(bytes) / seconds;
  }
  for (const std::int64_t depth : {4096, 8192, 16384}) {
    const std::int64_t side = gpu.effort().tiny ? 32 : 8192;
    const std::int64_t k = gpu.effort().tiny ? depth / 128 : depth;
    const RotatingMatrix a(gpu, DataType::bf16, side, k, 1);
    const RotatingMatrix b(gpu, DataType::bf16, side, k, 1);
    const RotatingMatrix c(gpu, DataType::bf16, side, side, 1);
    const double seconds =
        gpu.seconds([&](int) { gpu->gemm(false, true, 1, a[0], b[0], 0, c[0], gpu.stream()); });
    const double flops = 2.0 * static_cast<double>(side * side * k);
    ceilings.matrix_flops_per_second = std::max(ceilings.matrix_flops_per_second, flops / seconds);
  }
  {
    const RotatingMatrix operands(gpu, DataType::bf16, 1, cuda::kMmaOperands, 1);
    const RotatingMatrix out(gpu, DataType::f32, 1, 1, 1);
    const cuda::MmaWork work = gpu.effort().tiny ? cuda::MmaWork{1, 2} : cuda::MmaWork{2112, 4096};
    const double seconds = gpu.seconds(
        [&](int) { cuda::mma_in_registers(work, operands[0], out[0], gpu.cuda_stream()); });
    ceilings.mma_flops_per_second = cuda::mma_flops(work) / seconds;
  }
  return ceilings;
}

int run_gpu_benchmark(int argc, char** argv,
                      const std::function<Table(const Gpu&, const GpuCeilings&)>& measure) {
  CLI::App app{"A benchmark of the CUDA backend on the first GPU."};
  GpuEffort effort;
  std::string csv;
  app.add_flag("--tiny", effort.tiny, "little work, once: shows that it runs, times mean nothing");
  app.add_option("--csv", csv, "write the table to this file too");
  CLI11_PARSE(app, argc, argv);
  try {
    const Gpu gpu(effort);
    const GpuCeilings ceilings = measure_ceilings(gpu);
    Table table = measure(gpu, ceilings);
    table.notes.push_back(fmt::format(
        "{}: copies {:.0f} GB/s read and written, products {:.1f} TFLOP/s (cuBLASLt, bf16), "
        "mma.sync in registers {:.1f} TFLOP/s",
        gpu.device().name(), 1e-9 * ceilings.copy_bytes_per_second,
        1e-12 * ceilings.matrix_flops_per_second, 1e-12 * ceilings.mma_flops_per_second));
    table.notes.emplace_back("medians of batches between device events, rotating random buffers");
    std::fputs(to_text(table).c_str(), stdout);
    if (!csv.empty()) write_text_file(csv, to_csv(table));
  } catch (const InputError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace hydraulis
