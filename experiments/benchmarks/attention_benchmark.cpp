// Attention forward and backward over packs of 2048 tokens and others, 8 heads of 64: operations a
// second counting only scores under the diagonal, and their share of the multiply-adds that this
// machine does in registers, measured in turn with them.

#include <benchmark/benchmark.h>

#include <cmath>

#include "base/random.h"
#include "experiments/benchmarks/machine.h"
#include "kernels/compute.h"
#include "kernels/cpu/device.h"

namespace hydraulis {
namespace {

struct Pack {
  const char* name;
  std::int64_t sequences, length;
};
constexpr Pack kPacks[] = {{"1 x 2048", 1, 2048}, {"4 x 512", 4, 512},   {"16 x 128", 16, 128},
                           {"128 x 16", 128, 16}, {"1 x 8192", 1, 8192}, {"80000 x 16", 80000, 16}};

struct Buffer {
  Buffer(std::int64_t rows, std::int64_t columns, std::uint64_t seed)
      : data(static_cast<std::size_t>(rows * columns)),
        matrix{data.data(), DataType::f32, rows, columns, columns} {
    Random random(seed);
    for (float& x : data) x = static_cast<float>(random.uniform() - 0.5);
  }
  std::vector<float> data;
  Matrix matrix;
};

void attention(benchmark::State& state, bool backward) {
  const Pack& pack = kPacks[state.range(0)];
  const auto threads = static_cast<int>(state.range(1));
  const AttentionShape shape{8, static_cast<int>(state.range(2)), 64, 1 / std::sqrt(64.0)};
  const std::int64_t t = pack.sequences * pack.length;
  std::vector<AttentionSegment> segments;
  for (std::int64_t s = 0; s < pack.sequences; ++s) {
    segments.push_back({s * pack.length, pack.length, s * pack.length, pack.length, true});
  }
  const auto device = cpu::make_device(threads, 0);
  const auto compute = make_cpu_compute(*device);
  const auto stream = device->make_stream();
  const std::int64_t kv = shape.kv_heads * 64;
  const Buffer q(t, 512, 1), k(t, kv, 2), v(t, kv, 3), dout(t, 512, 4);
  const Buffer out(t, 512, 5), lse(t, 8, 6), delta(t, 8, 7), dq(t, 512, 8), dk(t, kv, 9),
      dv(t, kv, 10);
  const auto forward = [&] {
    compute->attention(shape, segments, q.matrix, k.matrix, v.matrix, false, out.matrix, lse.matrix,
                       *stream);
  };
  forward();
  compute->attention_delta(shape, out.matrix, dout.matrix, delta.matrix, *stream);
  BestTime own;
  BestTime peak;
  double peak_operations = 0;
  for (auto _ : state) {
    peak.measure([&] { peak_operations = multiply_add_in_registers<float>(threads); });
    own.measure([&] {
      if (!backward) return forward();
      compute->attention_backward(shape, segments, q.matrix, k.matrix, v.matrix, dout.matrix,
                                  lse.matrix, delta.matrix, dq.matrix, dk.matrix, dv.matrix,
                                  *stream);
    });
    state.SetIterationTime(own.last());
  }
  const auto length = static_cast<double>(pack.length);
  const double scores = static_cast<double>(pack.sequences) * length * (length + 1) / 2;
  const double operations = scores * 8 * 64 * (backward ? 10 : 4);
  const double peak_rate = peak_operations / peak.best();
  state.SetLabel(pack.name);
  state.counters["gflops"] = operations / own.best() * 1e-9;
  state.counters["peak_gflops"] = peak_rate * 1e-9;
  state.counters["share_of_peak"] = operations / own.best() / peak_rate;
  state.counters["best_ms"] = own.best() * 1e3;
}

void attention_forward(benchmark::State& state) { attention(state, false); }
void attention_backward(benchmark::State& state) { attention(state, true); }

void packs(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"pack", "threads", "kv_heads"})->UseManualTime()->MinTime(0.3);
  for (int threads = 1; threads <= 2; ++threads) {
    for (std::size_t i = 0; i < std::size(kPacks); ++i) {
      benchmark->Args({static_cast<std::int64_t>(i), threads, 8});
    }
    benchmark->Args({0, threads, 2});
  }
}

BENCHMARK(attention_forward)->Apply(packs)->Unit(benchmark::kMillisecond);
BENCHMARK(attention_backward)->Apply(packs)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace hydraulis
