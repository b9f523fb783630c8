// The shapes of a decoder of hidden size 512 on 2048 tokens, forward, input and weight gradients:
// operations a second, and as a share of the multiply-adds that this machine does in registers,
// measured in turn with them. Eigen's product of the same shapes on the same threads beside it.

#include <benchmark/benchmark.h>

#include <Eigen/Core>

#include "base/random.h"
#include "experiments/benchmarks/machine.h"
#include "kernels/compute.h"
#include "kernels/cpu/device.h"

namespace hydraulis {
namespace {

struct Shape {
  const char* name;
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
};

constexpr Shape kShapes[] = {
    {"qkv", 2048, 1536, 512, false, true},
    {"qkv input gradient", 2048, 512, 1536, false, false},
    {"qkv weight gradient", 1536, 512, 2048, true, false},
    {"attention output", 2048, 512, 512, false, true},
    {"gate and up", 2048, 2752, 512, false, true},
    {"gate and up weight gradient", 2752, 512, 2048, true, false},
    {"down", 2048, 512, 1376, false, true},
    {"logits", 2048, 8192, 512, false, true},
    {"logits input gradient", 2048, 512, 8192, false, false},
    {"logits weight gradient", 8192, 512, 2048, true, false},
    {"64 tokens", 64, 1536, 512, false, true},
    {"square", 2048, 2048, 2048, false, false},
};

template <typename T>
using Rows = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <typename T>
void eigen_product(const Shape& shape, const Rows<T>& a, const Rows<T>& b, Rows<T>& c) {
  if (shape.transpose_a) {
    c.noalias() = a.transpose() * b;
  } else if (shape.transpose_b) {
    c.noalias() = a * b.transpose();
  } else {
    c.noalias() = a * b;
  }
}

template <typename T>
void gemm(benchmark::State& state) {
  const Shape& shape = kShapes[state.range(0)];
  const auto threads = static_cast<int>(state.range(1));
  const auto device = cpu::make_device(threads, 0);
  const auto compute = make_cpu_compute(*device);
  const auto stream = device->make_stream();
  constexpr DataType type = sizeof(T) == 8 ? DataType::f64 : DataType::f32;
  Rows<T> a =
      Rows<T>::Random(shape.transpose_a ? shape.k : shape.m, shape.transpose_a ? shape.m : shape.k);
  Rows<T> b =
      Rows<T>::Random(shape.transpose_b ? shape.n : shape.k, shape.transpose_b ? shape.k : shape.n);
  Rows<T> c(shape.m, shape.n);
  const ConstMatrix left(a.data(), type, a.rows(), a.cols(), a.cols());
  const ConstMatrix right(b.data(), type, b.rows(), b.cols(), b.cols());
  const Matrix out{c.data(), type, c.rows(), c.cols(), c.cols()};
  Eigen::setNbThreads(threads);

  BestTime own;
  BestTime eigen;
  BestTime peak;
  double peak_operations = 0;
  for (auto _ : state) {
    peak.measure([&] { peak_operations = multiply_add_in_registers<T>(threads); });
    eigen.measure([&] { eigen_product(shape, a, b, c); });
    own.measure([&] {
      compute->gemm(shape.transpose_a, shape.transpose_b, 1, left, right, 0, out, *stream);
    });
    state.SetIterationTime(own.last());
  }
  const double operations = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                            static_cast<double>(shape.k);
  const double peak_rate = peak_operations / peak.best();
  state.SetLabel(shape.name);
  state.counters["gflops"] = operations / own.best() * 1e-9;
  state.counters["peak_gflops"] = peak_rate * 1e-9;
  state.counters["share_of_peak"] = operations / own.best() / peak_rate;
  state.counters["eigen_share"] = operations / eigen.best() / peak_rate;
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  for (int threads = 1; threads <= 2; ++threads) {
    for (std::size_t i = 0; i < std::size(kShapes); ++i) {
      benchmark->Args({static_cast<std::int64_t>(i), threads});
    }
  }
}

BENCHMARK(gemm<float>)
    ->ArgNames({"shape", "threads"})
    ->Apply(shapes)
    ->UseManualTime()
    ->MinTime(0.3);
BENCHMARK(gemm<double>)
    ->ArgNames({"shape", "threads"})
    ->Args({11, 1})
    ->Args({11, 2})
    ->UseManualTime()
    ->MinTime(0.3);

}  // namespace
}  // namespace hydraulis
