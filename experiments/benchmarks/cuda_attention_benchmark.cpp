// The CUDA backend's attention over packs of causal sequences, 32 heads of queries and 8 of keys:
// operations a second, causal ones counted as half, as a share of mma.sync in registers (the
// kernels are made of it) and of big products by cuBLASLt. The floor is the time at the mma.sync
// rate.

#include <cmath>

#include "experiments/benchmarks/cuda_machine.h"

namespace hydraulis {
namespace {

struct Pack {
  std::string name;
  std::vector<std::int64_t> lengths;
};

std::vector<Pack> packs(bool tiny) {
  if (tiny) return {{"40 + 3", {40, 3}}};
  std::vector<Pack> all;
  for (const std::int64_t length : {512, 1024, 2048, 4096, 8192, 16384}) {
    const std::int64_t count = 16384 / length;
    all.push_back({std::to_string(count) + " x " + std::to_string(length),
                   std::vector<std::int64_t>(static_cast<std::size_t>(count), length)});
  }
  Pack mixed{"8192 and shorter", {8192, 2048, 2048, 1024}};
  for (int i = 0; i < 24; ++i) mixed.lengths.push_back(128);
  all.push_back(mixed);
  all.push_back({"1 x 32768", {32768}});
  return all;
}

void attention(const Gpu& gpu, const GpuCeilings& ceilings, const Pack& pack, int head_dim,
               Table& table) {
  const AttentionShape shape{gpu.effort().tiny ? 2 : 32, gpu.effort().tiny ? 1 : 8, head_dim,
                             1 / std::sqrt(static_cast<double>(head_dim))};
  std::vector<AttentionSegment> segments;
  std::int64_t tokens = 0;
  double area = 0;
  for (const std::int64_t length : pack.lengths) {
    segments.push_back({tokens, length, tokens, length, true});
    tokens += length;
    area += 0.5 * static_cast<double>(length) * static_cast<double>(length);
  }
  const std::int64_t wide = std::int64_t{shape.heads} * head_dim;
  const std::int64_t narrow = std::int64_t{shape.kv_heads} * head_dim;
  const int sets = rotating_sets(gpu.effort(), tokens * (2 * wide + 2 * narrow) * 2);
  const RotatingMatrix q(gpu, DataType::bf16, tokens, wide, sets);
  const RotatingMatrix k(gpu, DataType::bf16, tokens, narrow, sets);
  const RotatingMatrix v(gpu, DataType::bf16, tokens, narrow, sets);
  const RotatingMatrix dout(gpu, DataType::bf16, tokens, wide, sets);
  const RotatingMatrix out(gpu, DataType::bf16, tokens, wide, sets);
  const RotatingMatrix lse(gpu, DataType::f32, tokens, shape.heads, sets);
  const RotatingMatrix delta(gpu, DataType::f32, tokens, shape.heads, sets);
  const RotatingMatrix dq(gpu, DataType::bf16, tokens, wide, 1);
  const RotatingMatrix dk(gpu, DataType::bf16, tokens, narrow, 1);
  const RotatingMatrix dv(gpu, DataType::bf16, tokens, narrow, 1);
  const auto forward = [&](int i) {
    gpu->attention(shape, segments, q[i], k[i], v[i], false, out[i], lse[i], gpu.stream());
  };
  const auto differences = [&](int i) {
    gpu->attention_delta(shape, out[i], dout[i], delta[i], gpu.stream());
  };
  for (int i = 0; i < sets; ++i) {  // what the backward reads
    forward(i);
    differences(i);
  }
  const auto row = [&](const char* pass, double flops, double seconds) {
    table.rows.push_back({pack.name, std::int64_t{head_dim}, pass,
                          1e6 * flops / ceilings.mma_flops_per_second, 1e6 * seconds,
                          1e-12 * flops / seconds,
                          100 * flops / seconds / ceilings.mma_flops_per_second,
                          100 * flops / seconds / ceilings.matrix_flops_per_second});
  };
  const double flops = 4 * area * head_dim * shape.heads;
  row("forward", flops, gpu.seconds(forward));
  row("backward", 2.5 * flops, gpu.seconds([&](int i) {
    differences(i);
    gpu->attention_backward(shape, segments, q[i], k[i], v[i], dout[i], lse[i], delta[i], dq[0],
                            dk[0], dv[0], gpu.stream());
  }));
}

Table measure(const Gpu& gpu, const GpuCeilings& ceilings) {
  Table table{"attention",
              {{"pack", "sequences", 0, Align::left},
               {"head_dim", "head size"},
               {"pass", "pass", 0, Align::left},
               {"floor_us", "floor µs"},
               {"us", "µs"},
               {"tflops", "TFLOP/s"},
               {"share_of_mma_percent", "% of mma.sync"},
               {"share_of_products_percent", "% of products"}},
              {},
              {}};
  for (const int head_dim : {128, 64}) {
    for (const Pack& pack : packs(gpu.effort().tiny)) {
      attention(gpu, ceilings, pack, head_dim, table);
    }
  }
  table.notes.emplace_back(
      "targets, head size 128, sequences of 8192: forward 75 % and backward 60 % of mma.sync");
  return table;
}

}  // namespace
}  // namespace hydraulis

int main(int argc, char** argv) {
  return hydraulis::run_gpu_benchmark(argc, argv, hydraulis::measure);
}
