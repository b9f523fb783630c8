#include "kernels/compute.h"

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "kernels/arguments.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/stream.h"

namespace hydraulis {
namespace {

using namespace arguments;  // NOLINT(google-build-using-namespace): every kernel checks them

/// call.operator()<T>() with the element type.
template <typename Call>
auto with_type(DataType type, Call call) {
  switch (type) {
    case DataType::f32:
      return call.template operator()<float>();
    case DataType::f64:
      return call.template operator()<double>();
    case DataType::bf16:
      break;
  }
  throw std::logic_error(std::string("the CPU backend does not compute in ") + to_string(type));
}

class CpuCompute : public Compute {
 public:
  explicit CpuCompute(Device& device) : device_(device) {}

  void gemm(bool transpose_a, bool transpose_b, double alpha, ConstMatrix a, ConstMatrix b,
            double beta, Matrix c, Stream& stream) override {
    cpu::drained(stream);
    require_types(c.type, {a, b});
    const std::int64_t depth = transpose_a ? a.rows : a.columns;
    require_shape(a, transpose_a ? depth : c.rows, transpose_a ? c.rows : depth, "gemm's a");
    require_shape(b, transpose_b ? c.columns : depth, transpose_b ? depth : c.columns, "gemm's b");
    require_shape(c, c.rows, c.columns, "gemm's c");
    with_type(c.type, [&]<typename T>() {
      cpu::gemm<T>(device_, transpose_a, transpose_b, static_cast<T>(alpha), cpu::view<T>(a),
                   cpu::view<T>(b), static_cast<T>(beta), cpu::view<T>(c));
    });
  }

  void rms_norm(ConstMatrix x, ConstMatrix weight, double epsilon, Matrix y, Matrix inverse_rms,
                Stream& stream) override {
    cpu::drained(stream);
    require_types(x.type, {weight, y, inverse_rms});
    require_shape(x, x.rows, x.columns, "rms_norm's x");
    require_shape(weight, 1, x.columns, "rms_norm's weight");
    require_shape(y, x.rows, x.columns, "rms_norm's y");
    require_shape(inverse_rms, x.rows, 1, "rms_norm's inverse_rms");
    with_type(x.type, [&]<typename T>() {
      cpu::rms_norm<T>(threads(), cpu::view<T>(x), cpu::view<T>(weight), static_cast<T>(epsilon),
                       cpu::view<T>(y), cpu::view<T>(inverse_rms));
    });
  }

  void rms_norm_backward(ConstMatrix dy, ConstMatrix x, ConstMatrix weight, ConstMatrix inverse_rms,
                         bool accumulate, Matrix dx, Matrix dweight, Stream& stream) override {
    cpu::drained(stream);
    require_types(x.type, {dy, weight, inverse_rms, dx, dweight});
    require_shape(x, x.rows, x.columns, "rms_norm_backward's x");
    require_shape(dy, x.rows, x.columns, "rms_norm_backward's dy");
    require_shape(weight, 1, x.columns, "rms_norm_backward's weight");
    require_shape(inverse_rms, x.rows, 1, "rms_norm_backward's inverse_rms");
    require_shape(dx, x.rows, x.columns, "rms_norm_backward's dx");
    require_shape(dweight, 1, x.columns, "rms_norm_backward's dweight");
    with_type(x.type, [&]<typename T>() {
      cpu::rms_norm_backward<T>(device_, cpu::view<T>(dy), cpu::view<T>(x), cpu::view<T>(weight),
                                cpu::view<T>(inverse_rms), accumulate, cpu::view<T>(dx),
                                cpu::view<T>(dweight));
    });
  }

  void rotary_table(std::span<const std::int32_t> positions,
                    std::span<const double> inverse_frequencies, Matrix table,
                    Stream& stream) override {
    cpu::drained(stream);
    require_shape(table, static_cast<std::int64_t>(positions.size()),
                  2 * static_cast<std::int64_t>(inverse_frequencies.size()),
                  "rotary_table's table");
    with_type(table.type, [&]<typename T>() {
      cpu::rotary_table<T>(threads(), positions, inverse_frequencies, cpu::view<T>(table));
    });
  }

  void rotary(Matrix x, int heads, ConstMatrix table, bool inverse, Stream& stream) override {
    cpu::drained(stream);
    require_types(x.type, {table});
    require(heads > 0 && table.columns % 2 == 0, "rotary's heads");
    require_shape(x, table.rows, heads * table.columns, "rotary's x");
    require_shape(table, x.rows, table.columns, "rotary's table");
    with_type(x.type, [&]<typename T>() {
      cpu::rotary<T>(threads(), cpu::view<T>(x), cpu::view<T>(table), inverse);
    });
  }

  void attention(const AttentionShape& shape, std::span<const AttentionSegment> segments,
                 ConstMatrix q, ConstMatrix k, ConstMatrix v, bool accumulate, Matrix out,
                 Matrix lse, Stream& stream) override {
    cpu::drained(stream);
    require_attention(shape, segments, q, k, v);
    require_types(q.type, {out, lse});
    require_shape(out, q.rows, q.columns, "attention's out");
    require_shape(lse, q.rows, shape.heads, "attention's lse");
    with_type(q.type, [&]<typename T>() {
      cpu::attention<T>(device_, shape, segments, cpu::view<T>(q), cpu::view<T>(k), cpu::view<T>(v),
                        accumulate, cpu::view<T>(out), cpu::view<T>(lse));
    });
  }

  void attention_delta(const AttentionShape& shape, ConstMatrix out, ConstMatrix dout, Matrix delta,
                       Stream& stream) override {
    cpu::drained(stream);
    require_types(out.type, {dout, delta});
    require_shape(out, out.rows, std::int64_t{shape.heads} * shape.head_dim,
                  "attention_delta's out");
    require_shape(dout, out.rows, out.columns, "attention_delta's dout");
    require_shape(delta, out.rows, shape.heads, "attention_delta's delta");
    with_type(out.type, [&]<typename T>() {
      cpu::attention_delta<T>(threads(), shape, cpu::view<T>(out), cpu::view<T>(dout),
                              cpu::view<T>(delta));
    });
  }

  void attention_backward(const AttentionShape& shape, std::span<const AttentionSegment> segments,
                          ConstMatrix q, ConstMatrix k, ConstMatrix v, ConstMatrix dout,
                          ConstMatrix lse, ConstMatrix delta, Matrix dq, Matrix dk, Matrix dv,
                          Stream& stream) override {
    cpu::drained(stream);
    require_attention(shape, segments, q, k, v);
    require_types(q.type, {dout, lse, delta, dq, dk, dv});
    require_shape(dout, q.rows, q.columns, "attention_backward's dout");
    require_shape(lse, q.rows, shape.heads, "attention_backward's lse");
    require_shape(delta, q.rows, shape.heads, "attention_backward's delta");
    require_shape(dq, q.rows, q.columns, "attention_backward's dq");
    require_shape(dk, k.rows, k.columns, "attention_backward's dk");
    require_shape(dv, k.rows, k.columns, "attention_backward's dv");
    with_type(q.type, [&]<typename T>() {
      cpu::attention_backward<T>(device_, shape, segments, cpu::view<T>(q), cpu::view<T>(k),
                                 cpu::view<T>(v), cpu::view<T>(dout), cpu::view<T>(lse),
                                 cpu::view<T>(delta), cpu::view<T>(dq), cpu::view<T>(dk),
                                 cpu::view<T>(dv));
    });
  }

  void swiglu(ConstMatrix gate_up, Matrix out, Stream& stream) override {
    cpu::drained(stream);
    require_types(out.type, {gate_up});
    require_shape(out, out.rows, out.columns, "swiglu's out");
    require_shape(gate_up, out.rows, 2 * out.columns, "swiglu's gate_up");
    with_type(out.type, [&]<typename T>() {
      cpu::swiglu<T>(threads(), cpu::view<T>(gate_up), cpu::view<T>(out));
    });
  }

  void swiglu_backward(ConstMatrix dout, ConstMatrix gate_up, Matrix d_gate_up,
                       Stream& stream) override {
    cpu::drained(stream);
    require_types(dout.type, {gate_up, d_gate_up});
    require_shape(dout, dout.rows, dout.columns, "swiglu_backward's dout");
    require_shape(gate_up, dout.rows, 2 * dout.columns, "swiglu_backward's gate_up");
    require_shape(d_gate_up, dout.rows, 2 * dout.columns, "swiglu_backward's d_gate_up");
    with_type(dout.type, [&]<typename T>() {
      cpu::swiglu_backward<T>(threads(), cpu::view<T>(dout), cpu::view<T>(gate_up),
                              cpu::view<T>(d_gate_up));
    });
  }

  void embedding(std::span<const std::int32_t> ids, std::int64_t first_row, ConstMatrix table,
                 Matrix out, Stream& stream) override {
    cpu::drained(stream);
    require_types(out.type, {table});
    require(first_row >= 0, "embedding's first row");
    require_shape(out, static_cast<std::int64_t>(ids.size()), table.columns, "embedding's out");
    require_shape(table, table.rows, out.columns, "embedding's table");
    with_type(out.type, [&]<typename T>() {
      cpu::embedding<T>(threads(), ids, first_row, cpu::view<T>(table), cpu::view<T>(out));
    });
  }

  void embedding_backward(std::span<const std::int32_t> ids, std::int64_t first_row,
                          ConstMatrix dout, Matrix dtable, Stream& stream) override {
    cpu::drained(stream);
    require_types(dout.type, {dtable});
    require(first_row >= 0, "embedding_backward's first row");
    require_shape(dout, static_cast<std::int64_t>(ids.size()), dtable.columns,
                  "embedding_backward's dout");
    require_shape(dtable, dtable.rows, dout.columns, "embedding_backward's dtable");
    with_type(dout.type, [&]<typename T>() {
      cpu::embedding_backward<T>(threads(), ids, first_row, cpu::view<T>(dout),
                                 cpu::view<T>(dtable));
    });
  }

  void cross_entropy_max(ConstMatrix logits, std::int64_t vocabulary, Matrix row_max,
                         Stream& stream) override {
    cpu::drained(stream);
    require_types(logits.type, {row_max});
    require_logits(logits, vocabulary);
    require_shape(row_max, logits.rows, 1, "cross_entropy_max's row_max");
    with_type(logits.type, [&]<typename T>() {
      cpu::cross_entropy_max<T>(threads(), cpu::view<T>(logits), vocabulary, cpu::view<T>(row_max));
    });
  }

  void cross_entropy_sums(ConstMatrix logits, std::int64_t vocabulary, std::int64_t first_column,
                          std::span<const std::int32_t> targets, ConstMatrix row_max, Matrix sums,
                          Stream& stream) override {
    cpu::drained(stream);
    require_types(logits.type, {row_max, sums});
    require_logits(logits, vocabulary);
    require(static_cast<std::int64_t>(targets.size()) == logits.rows, "cross entropy's targets");
    require_shape(row_max, logits.rows, 1, "cross_entropy_sums' row_max");
    require_shape(sums, logits.rows, 2, "cross_entropy_sums' sums");
    with_type(logits.type, [&]<typename T>() {
      cpu::cross_entropy_sums<T>(threads(), cpu::view<T>(logits), vocabulary, first_column, targets,
                                 cpu::view<T>(row_max), cpu::view<T>(sums));
    });
  }

  void cross_entropy_backward(Matrix logits, std::int64_t vocabulary, std::int64_t first_column,
                              std::span<const std::int32_t> targets, ConstMatrix row_max,
                              ConstMatrix sums, Stream& stream) override {
    cpu::drained(stream);
    require_types(logits.type, {row_max, sums});
    require_logits(logits, vocabulary);
    require(static_cast<std::int64_t>(targets.size()) == logits.rows, "cross entropy's targets");
    require_shape(row_max, logits.rows, 1, "cross_entropy_backward's row_max");
    require_shape(sums, logits.rows, 2, "cross_entropy_backward's sums");
    with_type(logits.type, [&]<typename T>() {
      cpu::cross_entropy_backward<T>(threads(), cpu::view<T>(logits), vocabulary, first_column,
                                     targets, cpu::view<T>(row_max), cpu::view<T>(sums));
    });
  }

  void add(ConstMatrix a, ConstMatrix b, Matrix out, Stream& stream) override {
    cpu::drained(stream);
    require_types(out.type, {a, b});
    require_shape(a, out.rows, out.columns, "add's a");
    require_shape(b, out.rows, out.columns, "add's b");
    require_shape(out, out.rows, out.columns, "add's out");
    with_type(out.type, [&]<typename T>() {
      cpu::add<T>(threads(), cpu::view<T>(a), cpu::view<T>(b), cpu::view<T>(out));
    });
  }

  void convert(ConstMatrix from, Matrix to, Stream& stream) override {
    cpu::drained(stream);
    require_shape(from, to.rows, to.columns, "convert's source");
    require_shape(to, to.rows, to.columns, "convert's target");
    if (from.type == DataType::f32 && to.type == DataType::bf16) {
      return cpu::round_to_bf16(threads(), cpu::view<float>(from), cpu::view<std::uint16_t>(to));
    }
    with_type(from.type, [&]<typename From>() {
      with_type(to.type, [&]<typename To>() {
        cpu::convert<From, To>(threads(), cpu::view<From>(from), cpu::view<To>(to));
      });
    });
  }

  double sum_squares(ConstMatrix x, Stream& stream) override {
    cpu::drained(stream);
    require_shape(x, x.rows, x.columns, "sum_squares' x");
    return with_type(x.type,
                     [&]<typename T>() { return cpu::sum_squares<T>(threads(), cpu::view<T>(x)); });
  }

  void adamw(const OptimizerStep& settings, std::span<const OptimizerStretch> stretches,
             ConstMatrix gradient, Matrix parameter, Matrix first_moment, Matrix second_moment,
             Stream& stream) override {
    cpu::drained(stream);
    require_types(parameter.type, {gradient, first_moment, second_moment});
    require_step(settings);
    require_stretches(stretches, parameter, {gradient, first_moment, second_moment});
    with_type(parameter.type, [&]<typename T>() {
      for (const OptimizerStretch& s : stretches) {
        cpu::adamw<T>(threads(), step_of(settings, s), s.count, gradient.as<T>() + s.begin,
                      parameter.as<T>() + s.begin, first_moment.as<T>() + s.begin,
                      second_moment.as<T>() + s.begin);
      }
    });
  }

  void lamb_direction(const OptimizerStep& settings, std::span<const OptimizerStretch> stretches,
                      ConstMatrix gradient, ConstMatrix parameter, Matrix first_moment,
                      Matrix second_moment, Matrix update, Stream& stream) override {
    cpu::drained(stream);
    require_types(parameter.type, {gradient, first_moment, second_moment, update});
    require_step(settings);
    require_stretches(stretches, parameter, {gradient, first_moment, second_moment, update});
    with_type(parameter.type, [&]<typename T>() {
      for (const OptimizerStretch& s : stretches) {
        cpu::lamb_direction<T>(threads(), step_of(settings, s), s.count, gradient.as<T>() + s.begin,
                               parameter.as<T>() + s.begin, first_moment.as<T>() + s.begin,
                               second_moment.as<T>() + s.begin, update.as<T>() + s.begin);
      }
    });
  }

  void sum_squares(std::span<const OptimizerStretch> stretches, ConstMatrix x,
                   std::span<double> sums, Stream& stream) override {
    cpu::drained(stream);
    require_stretches(stretches, x, {x});
    require(sums.size() == stretches.size(), "sum_squares' sums");
    with_type(x.type, [&]<typename T>() {
      for (std::size_t i = 0; i < stretches.size(); ++i) {
        const OptimizerStretch& s = stretches[i];
        sums[i] = cpu::sum_squares<T>(threads(), cpu::view<T>(x.column_range(s.begin, s.count)));
      }
    });
  }

  void add_scaled(std::span<const OptimizerStretch> stretches, std::span<const double> scales,
                  ConstMatrix x, Matrix y, Stream& stream) override {
    cpu::drained(stream);
    require_types(y.type, {x});
    require_stretches(stretches, y, {x});
    require(scales.size() == stretches.size(), "add_scaled's scales");
    with_type(y.type, [&]<typename T>() {
      for (std::size_t i = 0; i < stretches.size(); ++i) {
        const OptimizerStretch& s = stretches[i];
        cpu::add_scaled<T>(threads(), static_cast<T>(scales[i]),
                           cpu::view<T>(x.column_range(s.begin, s.count)),
                           cpu::view<T>(y.column_range(s.begin, s.count)));
      }
    });
  }

 private:
  static OptimizerStep step_of(OptimizerStep settings, const OptimizerStretch& stretch) {
    if (!stretch.decays) settings.weight_decay = 0;
    return settings;
  }

  int threads() const { return device_.threads(); }

  Device& device_;
};

}  // namespace

std::unique_ptr<Compute> make_cpu_compute(Device& device) {
  return std::make_unique<CpuCompute>(device);
}

}  // namespace hydraulis
