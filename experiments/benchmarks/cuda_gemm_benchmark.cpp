// The products of decoder layers on 8192 tokens, forward and both backwards, through the CUDA
// backend: operations a second as a share of the best of some big products. The floor is the time
// at that rate, or at the rate of copies where reading and writing the matrices takes longer.

#include "experiments/benchmarks/cuda_machine.h"

namespace hydraulis {
namespace {

struct Layer {
  const char* name;
  std::int64_t in, out;
};
// Of decoders with 1, 7 and 70 billion parameters, the last on 8 tensor-parallel ranks.
constexpr Layer kLayers[] = {{"1B qkv", 2048, 2560},          {"1B attention out", 2048, 2048},
                             {"1B gate and up", 2048, 11264}, {"1B down", 5632, 2048},
                             {"1B logits", 2048, 32000},      {"7B qkv", 4096, 12288},
                             {"7B gate and up", 4096, 22016}, {"7B down", 11008, 4096},
                             {"70B/8 qkv", 8192, 1280},       {"70B/8 gate and up", 8192, 7168},
                             {"70B/8 down", 3584, 8192}};

void products(const Gpu& gpu, const GpuCeilings& ceilings, const Layer& layer, Table& table) {
  const std::int64_t shrink = gpu.effort().tiny ? 256 : 1;
  const std::int64_t tokens = 8192 / shrink;
  const std::int64_t in = layer.in / shrink;
  const std::int64_t width = layer.out / shrink;
  const int sets = rotating_sets(gpu.effort(), 2 * (tokens * (in + width) + in * width));
  const RotatingMatrix x(gpu, DataType::bf16, tokens, in, sets);
  const RotatingMatrix weight(gpu, DataType::bf16, width, in, sets);
  const RotatingMatrix y(gpu, DataType::bf16, tokens, width, sets);
  const RotatingMatrix dweight(gpu, DataType::f32, width, in, sets);
  const double flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(in * width);
  const auto row = [&](const char* pass, double bytes, const std::function<void(int)>& call) {
    const double seconds = gpu.seconds(call);
    const double floor =
        std::max(flops / ceilings.matrix_flops_per_second, bytes / ceilings.copy_bytes_per_second);
    table.rows.push_back({layer.name, pass, 1e6 * floor, 1e6 * seconds, 1e-12 * flops / seconds,
                          100 * floor / seconds});
  };
  row("forward", x.bytes() + weight.bytes() + y.bytes(),
      [&](int i) { gpu->gemm(false, true, 1, x[i], weight[i], 0, y[i], gpu.stream()); });
  row("input gradient", x.bytes() + weight.bytes() + y.bytes(),
      [&](int i) { gpu->gemm(false, false, 1, y[i], weight[i], 0, x[i], gpu.stream()); });
  row("weight gradient", x.bytes() + y.bytes() + 2 * dweight.bytes(),
      [&](int i) { gpu->gemm(true, false, 1, y[i], x[i], 1, dweight[i], gpu.stream()); });
}

Table measure(const Gpu& gpu, const GpuCeilings& ceilings) {
  Table table{"products",
              {{"layer", "layer", 0, Align::left},
               {"pass", "pass", 0, Align::left},
               {"floor_us", "floor µs"},
               {"us", "µs"},
               {"tflops", "TFLOP/s"},
               {"share_percent", "% of floor"}},
              {},
              {}};
  for (const Layer& layer : kLayers) products(gpu, ceilings, layer, table);
  return table;
}

}  // namespace
}  // namespace hydraulis

int main(int argc, char** argv) {
  return hydraulis::run_gpu_benchmark(argc, argv, hydraulis::measure);
}
