// The kernels that move memory rather than compute, on 2048 tokens of a decoder of hidden size 512
// and on 16 million parameters: bytes a second, counting each matrix read or written once, and as a
// share of what copying large buffers reaches on the same threads, measured in turn with them.
// Shares above 1 are matrices that stay in the caches.

#include <benchmark/benchmark.h>

#include <array>
#include <cmath>
#include <functional>

#include "base/random.h"
#include "experiments/benchmarks/machine.h"
#include "kernels/compute.h"
#include "kernels/cpu/device.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kTokens = 2048;
constexpr std::int64_t kHidden = 512;
constexpr std::int64_t kFeedForward = 1376;
constexpr std::int64_t kVocabulary = 8192;
constexpr std::int64_t kParameters = std::int64_t{1} << 24;

struct Buffer {
  Buffer(std::int64_t rows, std::int64_t columns)
      : data(static_cast<std::size_t>(rows * columns)),
        matrix{data.data(), DataType::f32, rows, columns, columns} {
    Random random(static_cast<std::uint64_t>(rows));
    for (float& x : data) x = static_cast<float>(random.uniform() - 0.5);
  }
  operator Matrix() const { return matrix; }         // NOLINT(google-explicit-constructor)
  operator ConstMatrix() const { return {matrix}; }  // NOLINT(google-explicit-constructor)
  double bytes() const { return static_cast<double>(data.size() * sizeof(float)); }
  std::vector<float> data;
  Matrix matrix;
};

struct Bench {
  explicit Bench(benchmark::State& benchmark_state)
      : state(benchmark_state),
        threads(static_cast<int>(state.range(0))),
        device(cpu::make_device(threads, 0)),
        compute(make_cpu_compute(*device)),
        stream(device->make_stream()) {}

  void run(double bytes, const std::function<void()>& kernel) {
    BestTime own;
    BestTime copy;
    double copied = 0;
    CopyYardstick yardstick;
    for (auto _ : state) {
      copy.measure([&] { copied = yardstick.copy(threads); });
      own.measure(kernel);
      state.SetIterationTime(own.last());
    }
    state.counters["GB/s"] = bytes / own.best() * 1e-9;
    state.counters["copy_GB/s"] = copied / copy.best() * 1e-9;
    state.counters["share_of_copy"] = bytes / own.best() / (copied / copy.best());
    state.counters["best_us"] = own.best() * 1e6;
  }

  benchmark::State& state;
  int threads;
  std::unique_ptr<Device> device;
  std::unique_ptr<Compute> compute;
  std::unique_ptr<Stream> stream;
};

void rms_norm(benchmark::State& state) {
  Bench bench(state);
  const Buffer x(kTokens, kHidden), weight(1, kHidden), y(kTokens, kHidden), inverse(kTokens, 1);
  bench.run(x.bytes() + y.bytes(),
            [&] { bench.compute->rms_norm(x, weight, 1e-5, y, inverse, *bench.stream); });
}

void rms_norm_backward(benchmark::State& state) {
  Bench bench(state);
  const Buffer x(kTokens, kHidden), weight(1, kHidden), dy(kTokens, kHidden), inverse(kTokens, 1);
  const Buffer dx(kTokens, kHidden), dweight(1, kHidden);
  bench.run(3 * x.bytes(), [&] {
    bench.compute->rms_norm_backward(dy, x, weight, inverse, false, dx, dweight, *bench.stream);
  });
}

void rotary(benchmark::State& state) {
  Bench bench(state);
  const Buffer x(kTokens, kHidden), table(kTokens, 64);
  bench.run(2 * x.bytes() + table.bytes(),
            [&] { bench.compute->rotary(x, 8, table, false, *bench.stream); });
}

void swiglu(benchmark::State& state) {
  Bench bench(state);
  const Buffer gate_up(kTokens, 2 * kFeedForward), out(kTokens, kFeedForward);
  bench.run(gate_up.bytes() + out.bytes(),
            [&] { bench.compute->swiglu(gate_up, out, *bench.stream); });
}

void swiglu_backward(benchmark::State& state) {
  Bench bench(state);
  const Buffer gate_up(kTokens, 2 * kFeedForward), dout(kTokens, kFeedForward),
      gradient(kTokens, 2 * kFeedForward);
  bench.run(2 * gate_up.bytes() + dout.bytes(),
            [&] { bench.compute->swiglu_backward(dout, gate_up, gradient, *bench.stream); });
}

std::vector<std::int32_t> some_ids() {
  Random random(1);
  std::vector<std::int32_t> ids(kTokens);
  for (auto& id : ids) id = static_cast<std::int32_t>(random.below(kVocabulary));
  return ids;
}

void embedding(benchmark::State& state) {
  Bench bench(state);
  const Buffer table(kVocabulary, kHidden), out(kTokens, kHidden);
  const auto ids = some_ids();
  bench.run(2 * out.bytes(), [&] { bench.compute->embedding(ids, 0, table, out, *bench.stream); });
}

void embedding_backward(benchmark::State& state) {
  Bench bench(state);
  const Buffer table(kVocabulary, kHidden), dout(kTokens, kHidden);
  const auto ids = some_ids();
  bench.run(3 * dout.bytes(),
            [&] { bench.compute->embedding_backward(ids, 0, dout, table, *bench.stream); });
}

void cross_entropy(benchmark::State& state) {
  Bench bench(state);
  const Buffer logits(kTokens, kVocabulary), most(kTokens, 1), sums(kTokens, 2);
  const auto targets = some_ids();
  bench.run(4 * logits.bytes(), [&] {
    bench.compute->cross_entropy_max(logits, kVocabulary, most, *bench.stream);
    bench.compute->cross_entropy_sums(logits, kVocabulary, 0, targets, most, sums, *bench.stream);
    bench.compute->cross_entropy_backward(logits, kVocabulary, 0, targets, most, sums,
                                          *bench.stream);
  });
}

void add(benchmark::State& state) {
  Bench bench(state);
  const Buffer a(1, kParameters), b(1, kParameters), out(1, kParameters);
  bench.run(3 * a.bytes(), [&] { bench.compute->add(a, b, out, *bench.stream); });
}

void sum_squares(benchmark::State& state) {
  Bench bench(state);
  const Buffer x(1, kParameters);
  bench.run(x.bytes(),
            [&] { benchmark::DoNotOptimize(bench.compute->sum_squares(x, *bench.stream)); });
}

void adamw(benchmark::State& state) {
  Bench bench(state);
  const Buffer gradient(1, kParameters), parameter(1, kParameters), first(1, kParameters);
  Buffer second(1, kParameters);
  for (float& x : second.data) x = std::abs(x);
  OptimizerStep settings;
  settings.learning_rate = 1e-4;
  settings.weight_decay = 0.1;
  const std::array whole{OptimizerStretch{0, kParameters}};
  bench.run(7 * gradient.bytes(), [&] {
    bench.compute->adamw(settings, whole, gradient, parameter, first, second, *bench.stream);
  });
}

void one_and_two_threads(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("threads")->Arg(1)->Arg(2)->UseManualTime()->Iterations(20);
  benchmark->Unit(benchmark::kMicrosecond);
}

BENCHMARK(rms_norm)->Apply(one_and_two_threads);
BENCHMARK(rms_norm_backward)->Apply(one_and_two_threads);
BENCHMARK(rotary)->Apply(one_and_two_threads);
BENCHMARK(swiglu)->Apply(one_and_two_threads);
BENCHMARK(swiglu_backward)->Apply(one_and_two_threads);
BENCHMARK(embedding)->Apply(one_and_two_threads);
BENCHMARK(embedding_backward)->Apply(one_and_two_threads);
BENCHMARK(cross_entropy)->Apply(one_and_two_threads);
BENCHMARK(add)->Apply(one_and_two_threads);
BENCHMARK(sum_squares)->Apply(one_and_two_threads);
BENCHMARK(adamw)->Apply(one_and_two_threads);

}  // namespace
}  // namespace hydraulis
