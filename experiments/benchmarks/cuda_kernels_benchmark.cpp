// The CUDA backend's kernels that move memory, on 8192 tokens of a decoder with 7 billion
// parameters (hidden 4096) and on 64 million parameters in 300 tensors. The floor is the bytes that
// must be read and written, each once, at the rate of copies.

#include <array>
#include <numeric>

#include "base/random.h"
#include "experiments/benchmarks/cuda_machine.h"

namespace hydraulis {
namespace {

class Kernels {
 public:
  Kernels(const Gpu& gpu, const GpuCeilings& ceilings, Table& table)
      : gpu_(gpu), ceilings_(ceilings), table_(table), tiny_(gpu.effort().tiny) {}

  void run() {
    norms();
    attention_parts();
    feed_forward();
    vocabulary();
    optimizer();
  }

 private:
  using Call = std::function<void(int)>;
  std::int64_t tokens() const { return tiny_ ? 16 : 8192; }
  std::int64_t hidden() const { return tiny_ ? 64 : 4096; }

  RotatingMatrix bf16(std::int64_t rows, std::int64_t columns) const {
    return {gpu_, DataType::bf16, rows, columns, rotating_sets(gpu_.effort(), rows * columns * 2)};
  }
  RotatingMatrix f32(std::int64_t rows, std::int64_t columns, bool positive = false) const {
    return {gpu_,    DataType::f32, rows, columns, rotating_sets(gpu_.effort(), rows * columns * 4),
            positive};
  }
  void row(const char* kernel, double bytes, const Call& call) {
    const double seconds = gpu_.seconds(call);
    const double floor = bytes / ceilings_.copy_bytes_per_second;
    table_.rows.push_back({kernel, 1e-6 * bytes, 1e6 * floor, 1e6 * seconds, 1e-9 * bytes / seconds,
                           100 * floor / seconds});
  }

  void norms() {
    const RotatingMatrix x = bf16(tokens(), hidden());
    const RotatingMatrix y = bf16(tokens(), hidden());
    const RotatingMatrix dy = bf16(tokens(), hidden());
    const RotatingMatrix weight = bf16(1, hidden());
    const RotatingMatrix inverse = f32(tokens(), 1, true);
    const RotatingMatrix dweight = f32(1, hidden());
    row("rms_norm", x.bytes() + y.bytes(),
        [&](int i) { gpu_->rms_norm(x[i], weight[i], 1e-5, y[i], inverse[i], gpu_.stream()); });
    row("rms_norm backward", x.bytes() + dy.bytes() + y.bytes(), [&](int i) {
      gpu_->rms_norm_backward(dy[i], x[i], weight[i], inverse[i], false, y[i], dweight[0],
                              gpu_.stream());
    });
    row("add", x.bytes() + dy.bytes() + y.bytes(),
        [&](int i) { gpu_->add(x[i], dy[i], y[i], gpu_.stream()); });
  }

  void attention_parts() {
    const AttentionShape shape{static_cast<int>(hidden() / 64), static_cast<int>(hidden() / 64), 64,
                               0.125};
    const RotatingMatrix x = bf16(tokens(), hidden());
    const RotatingMatrix dout = bf16(tokens(), hidden());
    const RotatingMatrix angles = f32(tokens(), 64);
    const RotatingMatrix delta = f32(tokens(), shape.heads);
    row("rotary", 2 * x.bytes() + angles.bytes(),
        [&](int i) { gpu_->rotary(x[i], shape.heads, angles[i], false, gpu_.stream()); });
    row("attention delta", x.bytes() + dout.bytes() + delta.bytes(),
        [&](int i) { gpu_->attention_delta(shape, x[i], dout[i], delta[i], gpu_.stream()); });
  }

  void feed_forward() {
    const std::int64_t width = tiny_ ? 48 : 11008;
    const RotatingMatrix gate_up = bf16(tokens(), 2 * width);
    const RotatingMatrix gradient = bf16(tokens(), 2 * width);
    const RotatingMatrix out = bf16(tokens(), width);
    row("swiglu", gate_up.bytes() + out.bytes(),
        [&](int i) { gpu_->swiglu(gate_up[i], out[i], gpu_.stream()); });
    row("swiglu backward", 2 * gate_up.bytes() + out.bytes(),
        [&](int i) { gpu_->swiglu_backward(out[i], gate_up[i], gradient[i], gpu_.stream()); });
  }

  void vocabulary() {
    const std::int64_t words = tiny_ ? 40 : 32000;
    Random random(1);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens()));
    for (auto& id : ids) {
      id = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(words)));
    }
    {
      const RotatingMatrix table = bf16(words, hidden());
      const RotatingMatrix dtable = f32(words, hidden());
      const RotatingMatrix out = bf16(tokens(), hidden());
      row("embedding", 2 * out.bytes(),
          [&](int i) { gpu_->embedding(ids, 0, table[i], out[i], gpu_.stream()); });
      row("embedding backward", out.bytes() + 4 * out.bytes(),
          [&](int i) { gpu_->embedding_backward(ids, 0, out[i], dtable[i], gpu_.stream()); });
    }
    const RotatingMatrix logits = bf16(tokens(), words);
    const RotatingMatrix most = f32(tokens(), 1, true);
    const RotatingMatrix sums = f32(tokens(), 2, true);
    row("cross entropy max", logits.bytes(),
        [&](int i) { gpu_->cross_entropy_max(logits[i], words, most[i], gpu_.stream()); });
    row("cross entropy sums", logits.bytes(), [&](int i) {
      gpu_->cross_entropy_sums(logits[i], words, 0, ids, most[i], sums[i], gpu_.stream());
    });
    row("cross entropy backward", 2 * logits.bytes(), [&](int i) {
      gpu_->cross_entropy_backward(logits[i], words, 0, ids, most[i], sums[i], gpu_.stream());
    });
  }

  void optimizer() {
    const std::int64_t count = tiny_ ? 5000 : std::int64_t{1} << 26;
    const std::int64_t tensors = tiny_ ? 7 : 300;
    std::vector<OptimizerStretch> stretches;
    for (std::int64_t i = 0; i < tensors; ++i) {
      const std::int64_t begin = count * i / tensors;
      stretches.push_back({begin, count * (i + 1) / tensors - begin, i % 3 != 0});
    }
    const RotatingMatrix gradient = f32(1, count);
    const RotatingMatrix parameter = f32(1, count);
    const RotatingMatrix first = f32(1, count);
    const RotatingMatrix second = f32(1, count, true);
    const RotatingMatrix rounded = bf16(1, count);
    OptimizerStep step;
    step.learning_rate = 1e-4;
    step.weight_decay = 0.1;
    row("adamw", 7 * gradient.bytes(), [&](int i) {
      gpu_->adamw(step, stretches, gradient[i], parameter[i], first[i], second[i], gpu_.stream());
    });
    row("convert f32 to bf16", 1.5 * parameter.bytes(),
        [&](int i) { gpu_->convert(parameter[i], rounded[i], gpu_.stream()); });
    row("zero", gradient.bytes(), [&](int i) {
      gpu_.device().zero(gradient[i].data, gradient[i].elements() * 4, gpu_.stream());
    });
    std::vector<double> sums(stretches.size());
    row("sums of squares, waited for", gradient.bytes(),
        [&](int i) { gpu_->sum_squares(stretches, parameter[i], sums, gpu_.stream()); });
  }

  const Gpu& gpu_;
  const GpuCeilings& ceilings_;
  Table& table_;
  bool tiny_;
};

Table measure(const Gpu& gpu, const GpuCeilings& ceilings) {
  Table table{"kernels that move memory",
              {{"kernel", "kernel", 0, Align::left},
               {"mb", "MB"},
               {"floor_us", "floor µs"},
               {"us", "µs"},
               {"gb_per_second", "GB/s"},
               {"share_percent", "% of copies"}},
              {},
              {}};
  Kernels(gpu, ceilings, table).run();
  table.notes.emplace_back(
      "target: 85 % of copies; embeddings count the rows of their tokens alone");
  return table;
}

}  // namespace
}  // namespace hydraulis

int main(int argc, char** argv) {
  return hydraulis::run_gpu_benchmark(argc, argv, hydraulis::measure);
}
