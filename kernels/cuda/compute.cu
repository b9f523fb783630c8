#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/compute.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/optimizer.cuh"
#include "kernels/cuda/packs.h"

namespace hydraulis::cuda {

namespace {

using namespace arguments;  // NOLINT(google-build-using-namespace): every kernel checks them

void require_statistics(std::initializer_list<ConstMatrix> matrices) {
  for (const ConstMatrix& m : matrices) {
    require(m.type == DataType::f32, "statistics that are not f32");
  }
}

void require_gradient(DataType type, const ConstMatrix& gradient) {
  require(gradient.type == type || gradient.type == DataType::f32,
          "a gradient that is neither f32 nor of the matrices' type");
}

/// What the attention kernels' copies and products can take.
void require_tensor_cores(const AttentionShape& shape,
                          std::initializer_list<ConstMatrix> matrices) {
  with_head_dim(shape.head_dim, []<int>() {});  // says so when it has no such heads
  for (const ConstMatrix& m : matrices) {
    require(m.type == DataType::bf16, "attention on tensor cores is bf16");
    require(packs(8, m.columns, {m}), "attention's rows do not start at multiples of 16 bytes");
  }
}

void require_pairs(std::initializer_list<ConstMatrix> matrices) {
  for (const ConstMatrix& m : matrices) {
    require(packs(2, m.columns, {m}), "attention's results do not start at pairs of numbers");
  }
}

class CudaCompute : public Compute {
 public:
  explicit CudaCompute(CudaDevice& device) : device_(device), gemm_(device) {}

  void gemm(bool transpose_a, bool transpose_b, double alpha, ConstMatrix a, ConstMatrix b,
            double beta, Matrix c, Stream& stream) override {
    require_types(a.type, {b});
    require_gradient(a.type, c);
    const std::int64_t depth = transpose_a ? a.rows : a.columns;
    require_shape(a, transpose_a ? depth : c.rows, transpose_a ? c.rows : depth, "gemm's a");
    require_shape(b, transpose_b ? c.columns : depth, transpose_b ? depth : c.columns, "gemm's b");
    require_shape(c, c.rows, c.columns, "gemm's c");
    if (c.elements() == 0) return;
    if (depth == 0) {
      cuda::scale(beta, c, device_.use(stream, {c.data}));
    } else {
      gemm_.run(transpose_a, transpose_b, alpha, a, b, beta, c, stream);
    }
  }

  void rms_norm(ConstMatrix x, ConstMatrix weight, double epsilon, Matrix y, Matrix inverse_rms,
                Stream& stream) override {
    require_types(x.type, {weight, y});
    require_statistics({inverse_rms});
    require_shape(x, x.rows, x.columns, "rms_norm's x");
    require_shape(weight, 1, x.columns, "rms_norm's weight");
    require_shape(y, x.rows, x.columns, "rms_norm's y");
    require_shape(inverse_rms, x.rows, 1, "rms_norm's inverse_rms");
    cuda::rms_norm(x, weight, epsilon, y, inverse_rms,
                   device_.use(stream, {x.data, weight.data, y.data, inverse_rms.data}));
  }

  void rms_norm_backward(ConstMatrix dy, ConstMatrix x, ConstMatrix weight, ConstMatrix inverse_rms,
                         bool accumulate, Matrix dx, Matrix dweight, Stream& stream) override {
    require_types(x.type, {dy, weight, dx});
    require_statistics({inverse_rms});
    require_gradient(x.type, dweight);
    require_shape(x, x.rows, x.columns, "rms_norm_backward's x");
    require_shape(dy, x.rows, x.columns, "rms_norm_backward's dy");
    require_shape(weight, 1, x.columns, "rms_norm_backward's weight");
    require_shape(inverse_rms, x.rows, 1, "rms_norm_backward's inverse_rms");
    require_shape(dx, x.rows, x.columns, "rms_norm_backward's dx");
    require_shape(dweight, 1, x.columns, "rms_norm_backward's dweight");
    const DeviceBuffer workspace(device_, rms_norm_workspace_bytes(x.rows, x.columns));
    cuda::rms_norm_backward(dy, x, weight, inverse_rms, accumulate, dx, dweight, workspace.data(),
                            device_.use(stream, {dy.data, x.data, weight.data, inverse_rms.data,
                                                 dx.data, dweight.data, workspace.data()}));
  }

  void rotary_table(std::span<const std::int32_t> positions,
                    std::span<const double> inverse_frequencies, Matrix table,
                    Stream& stream) override {
    require_statistics({table});
    require_shape(table, static_cast<std::int64_t>(positions.size()),
                  2 * static_cast<std::int64_t>(inverse_frequencies.size()),
                  "rotary_table's table");
    const DeviceBuffer at = upload(positions, stream);
    const DeviceBuffer frequencies = upload(inverse_frequencies, stream);
    cuda::rotary_table(static_cast<const std::int32_t*>(at.data()),
                       static_cast<const double*>(frequencies.data()), table,
                       device_.use(stream, {table.data}));
  }

  void rotary(Matrix x, int heads, ConstMatrix table, bool inverse, Stream& stream) override {
    require_statistics({table});
    require(heads > 0 && table.columns % 2 == 0, "rotary's heads");
    require_shape(x, table.rows, heads * table.columns, "rotary's x");
    require_shape(table, x.rows, table.columns, "rotary's table");
    cuda::rotary(x, heads, table, inverse, device_.use(stream, {x.data, table.data}));
  }

  void attention(const AttentionShape& shape, std::span<const AttentionSegment> segments,
                 ConstMatrix q, ConstMatrix k, ConstMatrix v, bool accumulate, Matrix out,
                 Matrix lse, Stream& stream) override {
    require_attention(shape, segments, q, k, v);
    require_tensor_cores(shape, {q, k, v});
    require_statistics({lse});
    require_gradient(q.type, out);
    require_pairs({out});
    require_shape(out, q.rows, q.columns, "attention's out");
    require_shape(lse, q.rows, shape.heads, "attention's lse");
    const std::vector<AttentionTile> tiles = query_tiles(segments, attention_tile_rows());
    const DeviceBuffer uploaded = upload(std::span(tiles), stream);
    cuda::attention(shape, tile_list(uploaded, tiles), q, k, v, accumulate, out, lse,
                    device_.use(stream, {q.data, k.data, v.data, out.data, lse.data}));
  }

  void attention_delta(const AttentionShape& shape, ConstMatrix out, ConstMatrix dout, Matrix delta,
                       Stream& stream) override {
    require_gradient(dout.type, out);
    require_statistics({delta});
    require_shape(out, out.rows, std::int64_t{shape.heads} * shape.head_dim,
                  "attention_delta's out");
    require_shape(dout, out.rows, out.columns, "attention_delta's dout");
    require_shape(delta, out.rows, shape.heads, "attention_delta's delta");
    cuda::attention_delta(shape, out, dout, delta,
                          device_.use(stream, {out.data, dout.data, delta.data}));
  }

  void attention_backward(const AttentionShape& shape, std::span<const AttentionSegment> segments,
                          ConstMatrix q, ConstMatrix k, ConstMatrix v, ConstMatrix dout,
                          ConstMatrix lse, ConstMatrix delta, Matrix dq, Matrix dk, Matrix dv,
                          Stream& stream) override {
    require_attention(shape, segments, q, k, v);
    require_tensor_cores(shape, {q, k, v, dout});
    require_statistics({lse, delta});
    for (const Matrix& gradient : {dq, dk, dv}) require_gradient(q.type, gradient);
    require_pairs({dq, dk, dv});
    require_shape(dout, q.rows, q.columns, "attention_backward's dout");
    require_shape(lse, q.rows, shape.heads, "attention_backward's lse");
    require_shape(delta, q.rows, shape.heads, "attention_backward's delta");
    require_shape(dq, q.rows, q.columns, "attention_backward's dq");
    require_shape(dk, k.rows, k.columns, "attention_backward's dk");
    require_shape(dv, k.rows, k.columns, "attention_backward's dv");
    const cudaStream_t on = device_.use(stream, {q.data, k.data, v.data, dout.data, lse.data,
                                                 delta.data, dq.data, dk.data, dv.data});
    const AttentionGradient given{q, k, v, dout, lse, delta};
    const std::vector<AttentionTile> queries =
        query_tiles(segments, attention_backward_tile_rows());
    const DeviceBuffer queries_there = upload(std::span(queries), stream);
    cuda::attention_dq(shape, tile_list(queries_there, queries), given, dq, on);
    for (const auto& keys : key_tiles(segments, attention_backward_tile_rows())) {
      const DeviceBuffer keys_there = upload(std::span(keys), stream);
      cuda::attention_dkv(shape, tile_list(keys_there, keys), given, dk, dv, on);
    }
  }

  void swiglu(ConstMatrix gate_up, Matrix out, Stream& stream) override {
    require_types(out.type, {gate_up});
    require_shape(out, out.rows, out.columns, "swiglu's out");
    require_shape(gate_up, out.rows, 2 * out.columns, "swiglu's gate_up");
    cuda::swiglu(gate_up, out, device_.use(stream, {gate_up.data, out.data}));
  }

  void swiglu_backward(ConstMatrix dout, ConstMatrix gate_up, Matrix d_gate_up,
                       Stream& stream) override {
    require_types(dout.type, {gate_up, d_gate_up});
    require_shape(dout, dout.rows, dout.columns, "swiglu_backward's dout");
    require_shape(gate_up, dout.rows, 2 * dout.columns, "swiglu_backward's gate_up");
    require_shape(d_gate_up, dout.rows, 2 * dout.columns, "swiglu_backward's d_gate_up");
    cuda::swiglu_backward(dout, gate_up, d_gate_up,
                          device_.use(stream, {dout.data, gate_up.data, d_gate_up.data}));
  }

  void embedding(std::span<const std::int32_t> ids, std::int64_t first_row, ConstMatrix table,
                 Matrix out, Stream& stream) override {
    require_types(out.type, {table});
    require(first_row >= 0, "embedding's first row");
    require_shape(out, static_cast<std::int64_t>(ids.size()), table.columns, "embedding's out");
    require_shape(table, table.rows, out.columns, "embedding's table");
    const DeviceBuffer uploaded = upload(ids, stream);
    cuda::embedding(static_cast<const std::int32_t*>(uploaded.data()), first_row, table, out,
                    device_.use(stream, {table.data, out.data}));
  }

  void embedding_backward(std::span<const std::int32_t> ids, std::int64_t first_row,
                          ConstMatrix dout, Matrix dtable, Stream& stream) override {
    require_gradient(dout.type, dtable);
    require(first_row >= 0, "embedding_backward's first row");
    require_shape(dout, static_cast<std::int64_t>(ids.size()), dtable.columns,
                  "embedding_backward's dout");
    require_shape(dtable, dtable.rows, dout.columns, "embedding_backward's dtable");
    const EmbeddingPlan plan = plan_embedding(ids, first_row, dtable.rows);
    if (plan.tokens.empty()) return;
    const DeviceBuffer tokens = upload(std::span(plan.tokens), stream);
    const DeviceBuffer pieces = upload(std::span(plan.pieces), stream);
    const DeviceBuffer rows = upload(std::span(plan.rows), stream);
    const auto piece_count = static_cast<std::int64_t>(plan.pieces.size());
    const DeviceBuffer workspace(device_, piece_count * dout.columns * size_of(DataType::f32));
    const Matrix sums{workspace.data(), DataType::f32, piece_count, dout.columns, dout.columns};
    const DeviceEmbeddingPlan on_device{static_cast<const std::int64_t*>(tokens.data()),
                                        static_cast<const EmbeddingPlan::Piece*>(pieces.data()),
                                        static_cast<const EmbeddingPlan::Row*>(rows.data()),
                                        static_cast<std::int64_t>(plan.rows.size())};
    cuda::embedding_backward(on_device, dout, dtable, sums,
                             device_.use(stream, {dout.data, dtable.data, sums.data}));
  }

  void cross_entropy_max(ConstMatrix logits, std::int64_t vocabulary, Matrix row_max,
                         Stream& stream) override {
    require_statistics({row_max});
    require_logits(logits, vocabulary);
    require_shape(row_max, logits.rows, 1, "cross_entropy_max's row_max");
    cuda::cross_entropy_max(logits, vocabulary, row_max,
                            device_.use(stream, {logits.data, row_max.data}));
  }

  void cross_entropy_sums(ConstMatrix logits, std::int64_t vocabulary, std::int64_t first_column,
                          std::span<const std::int32_t> targets, ConstMatrix row_max, Matrix sums,
                          Stream& stream) override {
    require_statistics({row_max, sums});
    require_cross_entropy(logits, vocabulary, targets, row_max, sums);
    const DeviceBuffer uploaded = upload(targets, stream);
    cuda::cross_entropy_sums(logits, vocabulary, first_column,
                             static_cast<const std::int32_t*>(uploaded.data()), row_max, sums,
                             device_.use(stream, {logits.data, row_max.data, sums.data}));
  }

  void cross_entropy_backward(Matrix logits, std::int64_t vocabulary, std::int64_t first_column,
                              std::span<const std::int32_t> targets, ConstMatrix row_max,
                              ConstMatrix sums, Stream& stream) override {
    require_statistics({row_max, sums});
    require_cross_entropy(logits, vocabulary, targets, row_max, sums);
    const DeviceBuffer uploaded = upload(targets, stream);
    cuda::cross_entropy_backward(logits, vocabulary, first_column,
                                 static_cast<const std::int32_t*>(uploaded.data()), row_max, sums,
                                 device_.use(stream, {logits.data, row_max.data, sums.data}));
  }

  void add(ConstMatrix a, ConstMatrix b, Matrix out, Stream& stream) override {
    require_types(out.type, {a, b});
    require_shape(a, out.rows, out.columns, "add's a");
    require_shape(b, out.rows, out.columns, "add's b");
    require_shape(out, out.rows, out.columns, "add's out");
    cuda::add(a, b, out, device_.use(stream, {a.data, b.data, out.data}));
  }

  void convert(ConstMatrix from, Matrix to, Stream& stream) override {
    require_shape(from, to.rows, to.columns, "convert's source");
    require_shape(to, to.rows, to.columns, "convert's target");
    cuda::convert(from, to, device_.use(stream, {from.data, to.data}));
  }

  double sum_squares(ConstMatrix x, Stream& stream) override {
    require_shape(x, x.rows, x.columns, "sum_squares' x");
    const DeviceBuffer workspace(device_, sum_squares_workspace_bytes());
    const double* sum =
        cuda::sum_squares(x, workspace.data(), device_.use(stream, {x.data, workspace.data()}));
    double result = 0;
    device_.copy_to_host(&result, sum, sizeof result, stream);
    device_.synchronize(stream);
    return result;
  }

  void adamw(const OptimizerStep& settings, std::span<const OptimizerStretch> stretches,
             ConstMatrix gradient, Matrix parameter, Matrix first_moment, Matrix second_moment,
             Stream& stream) override {
    require_statistics({parameter, gradient, first_moment, second_moment});
    require_step(settings);
    require_stretches(stretches, parameter, {gradient, first_moment, second_moment});
    const double decay = settings.learning_rate * settings.weight_decay;
    const Uploaded pieces(*this, stretches, decays(stretches, decay), stream);
    cuda::adamw(settings, pieces.list(), gradient, parameter, first_moment, second_moment,
                device_.use(stream, {gradient.data, parameter.data, first_moment.data,
                                     second_moment.data}));
  }

  void lamb_direction(const OptimizerStep& settings, std::span<const OptimizerStretch> stretches,
                      ConstMatrix gradient, ConstMatrix parameter, Matrix first_moment,
                      Matrix second_moment, Matrix update, Stream& stream) override {
    require_statistics({parameter, gradient, first_moment, second_moment, update});
    require_step(settings);
    require_stretches(stretches, parameter, {gradient, first_moment, second_moment, update});
    const Uploaded pieces(*this, stretches, decays(stretches, settings.weight_decay), stream);
    cuda::lamb_direction(settings, pieces.list(), gradient, parameter, first_moment, second_moment,
                         update,
                         device_.use(stream, {gradient.data, parameter.data, first_moment.data,
                                              second_moment.data, update.data}));
  }

  void sum_squares(std::span<const OptimizerStretch> stretches, ConstMatrix x,
                   std::span<double> sums, Stream& stream) override {
    require_statistics({x});
    require_stretches(stretches, x, {x});
    require(sums.size() == stretches.size(), "sum_squares' sums");
    if (sums.empty()) return;
    const Uploaded pieces(*this, stretches, {}, stream);
    const std::int64_t bytes = static_cast<std::int64_t>(sums.size_bytes());
    const DeviceBuffer of_pieces(device_, pieces.list().count * std::int64_t{sizeof(double)});
    const DeviceBuffer of_stretches(device_, bytes);
    cuda::sum_squares(pieces.list(), x, static_cast<double*>(of_pieces.data()),
                      static_cast<double*>(of_stretches.data()),
                      device_.use(stream, {x.data, of_pieces.data(), of_stretches.data()}));
    device_.copy_to_host(sums.data(), of_stretches.data(), bytes, stream);
    device_.synchronize(stream);
  }

  void add_scaled(std::span<const OptimizerStretch> stretches, std::span<const double> scales,
                  ConstMatrix x, Matrix y, Stream& stream) override {
    require_statistics({x, y});
    require_stretches(stretches, y, {x});
    require(scales.size() == stretches.size(), "add_scaled's scales");
    const Uploaded pieces(*this, stretches, {scales.begin(), scales.end()}, stream);
    cuda::add_scaled(pieces.list(), x, y, device_.use(stream, {x.data, y.data}));
  }

 private:
  /// What the optimizer's kernels are told of their stretches, in device memory.
  class Uploaded {
   public:
    Uploaded(CudaCompute& compute, std::span<const OptimizerStretch> stretches,
             const std::vector<float>& factors, Stream& stream) {
      const OptimizerPieces pieces = optimizer_pieces(stretches);
      pieces_ = compute.upload(std::span(pieces.pieces), stream);
      ends_ = compute.upload(std::span(pieces.ends), stream);
      factors_ = compute.upload(std::span(factors), stream);
      list_ = {static_cast<const OptimizerPieces::Piece*>(pieces_.data()),
               static_cast<std::int64_t>(pieces.pieces.size()),
               static_cast<const std::int64_t*>(ends_.data()),
               static_cast<std::int64_t>(stretches.size()),
               static_cast<const float*>(factors_.data())};
    }
    const PieceList& list() const { return list_; }

   private:
    DeviceBuffer pieces_, ends_, factors_;
    PieceList list_;
  };

  static std::vector<float> decays(std::span<const OptimizerStretch> stretches, double decay) {
    std::vector<float> factors;
    for (const OptimizerStretch& s : stretches) {
      factors.push_back(s.decays ? static_cast<float>(decay) : 0.0F);
    }
    return factors;
  }

  /// Device memory with a copy of what the host gives, ready for the stream.
  template <typename T>
  DeviceBuffer upload(std::span<T> values, Stream& stream) {
    const auto bytes = static_cast<std::int64_t>(values.size_bytes());
    DeviceBuffer buffer(device_, bytes);
    device_.copy_to_device(buffer.data(), values.data(), bytes, stream);
    return buffer;
  }

  static TileList tile_list(const DeviceBuffer& uploaded, const std::vector<AttentionTile>& tiles) {
    return {static_cast<const AttentionTile*>(uploaded.data()),
            static_cast<std::int64_t>(tiles.size())};
  }

  static void require_cross_entropy(const ConstMatrix& logits, std::int64_t vocabulary,
                                    std::span<const std::int32_t> targets,
                                    const ConstMatrix& row_max, const ConstMatrix& sums) {
    require_logits(logits, vocabulary);
    require(static_cast<std::int64_t>(targets.size()) == logits.rows, "cross entropy's targets");
    require_shape(row_max, logits.rows, 1, "cross entropy's row_max");
    require_shape(sums, logits.rows, 2, "cross entropy's sums");
  }

  CudaDevice& device_;
  Gemm gemm_;
};

}  // namespace

std::unique_ptr<Compute> make_compute(Device& device) {
  return std::make_unique<CudaCompute>(static_cast<CudaDevice&>(device));
}

}  // namespace hydraulis::cuda
