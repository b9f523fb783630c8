#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/device.h"
#include "kernels/matrix.h"

namespace hydraulis {

/// Heads of one device. Query head j attends to key/value head j / (heads / kv_heads).
struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  double scale = 1;  ///< of the scores, 1/√head_dim
};

/// A stretch of query rows that attends to a stretch of key rows: to all of them, or, when causal,
/// query i of the stretch to keys 0…i of it (equal counts). Sequences that are not listed do not
/// exist: rows outside every segment are neither read nor written. Empty stretches do nothing.
struct AttentionSegment {
  std::int64_t query_begin = 0;
  std::int64_t query_count = 0;
  std::int64_t key_begin = 0;
  std::int64_t key_count = 0;
  bool causal = true;
};

/// Settings of an optimizer's step.
struct OptimizerStep {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;  ///< multiplies gradients first: 1/targets, clipping
  std::int64_t step = 1;      ///< counted from 1, for the bias corrections
};

/// Neighbouring elements of one tensor within the one-row matrices that the optimizer works on.
struct OptimizerStretch {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  bool decays = true;  ///< weight_decay holds for it
};

/// The compute kernels of a backend. All matrices of a call have one type unless said otherwise;
/// outputs must not overlap inputs unless said otherwise. Rows are tokens ("T"), h is the hidden
/// size, d the head size. Sums run in an order that depends on shapes and the number of threads
/// alone, so the same call gives the same bits. Wrong shapes throw std::logic_error.
class Compute {
 public:
  virtual ~Compute() = default;

  /// c = alpha·op(a)·op(b) + beta·c, with op the identity or the transpose. beta = 0 does not read
  /// c.
  virtual void gemm(bool transpose_a, bool transpose_b, double alpha, ConstMatrix a, ConstMatrix b,
                    double beta, Matrix c, Stream& stream) = 0;

  /// y = x·inverse_rms·weight with inverse_rms[T] = 1/√(mean x² + epsilon). weight is [1, h],
  /// inverse_rms [T, 1]. Also used over heads: x [T·heads, d].
  virtual void rms_norm(ConstMatrix x, ConstMatrix weight, double epsilon, Matrix y,
                        Matrix inverse_rms, Stream& stream) = 0;
  /// dx (+)= gradient to x (added to what is there if `accumulate`), dweight += gradient to weight.
  /// dx may be dy.
  virtual void rms_norm_backward(ConstMatrix dy, ConstMatrix x, ConstMatrix weight,
                                 ConstMatrix inverse_rms, bool accumulate, Matrix dx,
                                 Matrix dweight, Stream& stream) = 0;

  /// table[t] = (cos(p·f_0) … cos(p·f_{d/2-1}), sin(p·f_0) …) for position p = positions[t];
  /// angles in double precision. table is [T, d].
  virtual void rotary_table(std::span<const std::int32_t> positions,
                            std::span<const double> inverse_frequencies, Matrix table,
                            Stream& stream) = 0;
  /// Rotates every head of x [T, heads·d] in place: pairs (i, i + d/2) by the table's angle, back
  /// if `inverse` (the backward).
  virtual void rotary(Matrix x, int heads, ConstMatrix table, bool inverse, Stream& stream) = 0;

  /// Attention within segments. q [T, heads·d], k and v [K, kv_heads·d], out like q, lse [T, heads]
  /// (natural logarithm of the sum of exponentials of the scaled scores). With `accumulate` the
  /// result is merged with the partial result that out and lse already hold (lse = −∞ and out = 0
  /// for none yet); without, it replaces it. A row may be in one causal or full segment per call.
  virtual void attention(const AttentionShape& shape, std::span<const AttentionSegment> segments,
                         ConstMatrix q, ConstMatrix k, ConstMatrix v, bool accumulate, Matrix out,
                         Matrix lse, Stream& stream) = 0;
  /// delta[T, heads] = Σ_d out·dout per head.
  virtual void attention_delta(const AttentionShape& shape, ConstMatrix out, ConstMatrix dout,
                               Matrix delta, Stream& stream) = 0;
  /// dq, dk, dv += gradients of attention within segments, with lse and delta of the whole result.
  virtual void attention_backward(const AttentionShape& shape,
                                  std::span<const AttentionSegment> segments, ConstMatrix q,
                                  ConstMatrix k, ConstMatrix v, ConstMatrix dout, ConstMatrix lse,
                                  ConstMatrix delta, Matrix dq, Matrix dk, Matrix dv,
                                  Stream& stream) = 0;

  /// gate_up [T, 2f] = (gate, up); out [T, f] = silu(gate)·up.
  virtual void swiglu(ConstMatrix gate_up, Matrix out, Stream& stream) = 0;
  /// d_gate_up from dout [T, f]; may be gate_up itself.
  virtual void swiglu_backward(ConstMatrix dout, ConstMatrix gate_up, Matrix d_gate_up,
                               Stream& stream) = 0;

  /// out[t] = table[ids[t] − first_row], or zeros where that row is not in the table (another
  /// device's part of the vocabulary, or the id −1 of padding).
  virtual void embedding(std::span<const std::int32_t> ids, std::int64_t first_row,
                         ConstMatrix table, Matrix out, Stream& stream) = 0;
  /// dtable[ids[t] − first_row] += dout[t], in the order of t.
  virtual void embedding_backward(std::span<const std::int32_t> ids, std::int64_t first_row,
                                  ConstMatrix dout, Matrix dtable, Stream& stream) = 0;

  /// Vocabulary-parallel cross entropy over logits [T, columns of this device], in three steps with
  /// an all-reduce (max, then sum) between them. row_max[T, 1] = greatest logit of the first
  /// `vocabulary` columns (the rest is padding and does not exist); −∞ if vocabulary is 0.
  virtual void cross_entropy_max(ConstMatrix logits, std::int64_t vocabulary, Matrix row_max,
                                 Stream& stream) = 0;
  /// sums [T, 2] = (Σ exp(logit − row_max), logit of targets[t] − row_max, or 0 where the target is
  /// not in columns first_column…). Target −1: no target.
  virtual void cross_entropy_sums(ConstMatrix logits, std::int64_t vocabulary,
                                  std::int64_t first_column, std::span<const std::int32_t> targets,
                                  ConstMatrix row_max, Matrix sums, Stream& stream) = 0;
  /// logits ← (softmax − one-hot) of rows with a target, 0 elsewhere (padding columns too): the
  /// gradient of the summed loss, in place.
  virtual void cross_entropy_backward(Matrix logits, std::int64_t vocabulary,
                                      std::int64_t first_column,
                                      std::span<const std::int32_t> targets, ConstMatrix row_max,
                                      ConstMatrix sums, Stream& stream) = 0;

  /// out = a + b; out may be a or b.
  virtual void add(ConstMatrix a, ConstMatrix b, Matrix out, Stream& stream) = 0;
  /// Copies with conversion between types.
  virtual void convert(ConstMatrix from, Matrix to, Stream& stream) = 0;

  /// Σ x² over the elements, in double precision with pairwise sums. Waits for the stream.
  virtual double sum_squares(ConstMatrix x, Stream& stream) = 0;

  // The optimizer works on matrices of one row that hold many tensors, or parts of them, in
  // stretches one behind another (in ascending order, gaps between them are neither read nor
  // written), all in one call. Master parameters, gradients and both moments have one type.

  /// One decoupled-weight-decay Adam step (Loshchilov and Hutter, 2019).
  virtual void adamw(const OptimizerStep& settings, std::span<const OptimizerStretch> stretches,
                     ConstMatrix gradient, Matrix parameter, Matrix first_moment,
                     Matrix second_moment, Stream& stream) = 0;
  /// First half of a LAMB step (You et al., 2020): update = Adam direction +
  /// weight_decay·parameter, moments advanced. The caller then knows ‖parameter‖ and ‖update‖ of
  /// whole tensors and applies parameter −= learning_rate·ratio·update through `add_scaled`.
  virtual void lamb_direction(const OptimizerStep& settings,
                              std::span<const OptimizerStretch> stretches, ConstMatrix gradient,
                              ConstMatrix parameter, Matrix first_moment, Matrix second_moment,
                              Matrix update, Stream& stream) = 0;
  /// sums[i] = Σ x² over stretch i, in double precision with pairwise sums. Waits for the stream.
  virtual void sum_squares(std::span<const OptimizerStretch> stretches, ConstMatrix x,
                           std::span<double> sums, Stream& stream) = 0;
  /// y += scales[i]·x over stretch i.
  virtual void add_scaled(std::span<const OptimizerStretch> stretches,
                          std::span<const double> scales, ConstMatrix x, Matrix y,
                          Stream& stream) = 0;
};

/// Elements of each operand that a product of the CPU backend rearranges in workspace at once, at
/// most.
inline constexpr std::int64_t kCpuProductElements = std::int64_t{1} << 21;

/// The compute kernels of the CPU backend for f32 and f64 matrices; convert() makes bf16 of f32
/// too. Each kernel uses device.threads() threads, and fewer where the work is small.
std::unique_ptr<Compute> make_cpu_compute(Device& device);

}  // namespace hydraulis
