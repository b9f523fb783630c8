#pragma once

#include <cstdint>
#include <span>

#include "kernels/compute.h"
#include "kernels/matrix.h"

// The CPU kernels for one element type, float or double, each in the file of its name. Shapes have
// been checked (compute.cpp) and streams drained.
namespace hydraulis::cpu {

/// A matrix whose type is known.
template <typename T>
struct View {
  T* data;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;
  T* row(std::int64_t i) const { return data + i * stride; }
  std::int64_t elements() const { return rows * columns; }
};
template <typename T>
View<T> view(const Matrix& m) {
  return {m.as<T>(), m.rows, m.columns, m.stride};
}
template <typename T>
View<const T> view(const ConstMatrix& m) {
  return {m.as<T>(), m.rows, m.columns, m.stride};
}

// gemm.cpp
template <typename T>
void gemm(Device& device, bool transpose_a, bool transpose_b, T alpha, View<const T> a,
          View<const T> b, T beta, View<T> c);

// rms_norm.cpp
template <typename T>
void rms_norm(int threads, View<const T> x, View<const T> weight, T epsilon, View<T> y,
              View<T> inverse_rms);
template <typename T>
void rms_norm_backward(Device& device, View<const T> dy, View<const T> x, View<const T> weight,
                       View<const T> inverse_rms, bool accumulate, View<T> dx, View<T> dweight);

// rotary.cpp
template <typename T>
void rotary_table(int threads, std::span<const std::int32_t> positions,
                  std::span<const double> inverse_frequencies, View<T> table);
template <typename T>
void rotary(int threads, View<T> x, View<const T> table, bool inverse);

// attention.cpp, attention_backward.cpp
template <typename T>
void attention(Device& device, const AttentionShape& shape,
               std::span<const AttentionSegment> segments, View<const T> q, View<const T> k,
               View<const T> v, bool accumulate, View<T> out, View<T> lse);
template <typename T>
void attention_delta(int threads, const AttentionShape& shape, View<const T> out,
                     View<const T> dout, View<T> delta);
template <typename T>
void attention_backward(Device& device, const AttentionShape& shape,
                        std::span<const AttentionSegment> segments, View<const T> q,
                        View<const T> k, View<const T> v, View<const T> dout, View<const T> lse,
                        View<const T> delta, View<T> dq, View<T> dk, View<T> dv);

// swiglu.cpp
template <typename T>
void swiglu(int threads, View<const T> gate_up, View<T> out);
template <typename T>
void swiglu_backward(int threads, View<const T> dout, View<const T> gate_up, View<T> d_gate_up);

// embedding.cpp
template <typename T>
void embedding(int threads, std::span<const std::int32_t> ids, std::int64_t first_row,
               View<const T> table, View<T> out);
template <typename T>
void embedding_backward(int threads, std::span<const std::int32_t> ids, std::int64_t first_row,
                        View<const T> dout, View<T> dtable);

// cross_entropy.cpp
template <typename T>
void cross_entropy_max(int threads, View<const T> logits, std::int64_t vocabulary, View<T> row_max);
template <typename T>
void cross_entropy_sums(int threads, View<const T> logits, std::int64_t vocabulary,
                        std::int64_t first_column, std::span<const std::int32_t> targets,
                        View<const T> row_max, View<T> sums);
template <typename T>
void cross_entropy_backward(int threads, View<T> logits, std::int64_t vocabulary,
                            std::int64_t first_column, std::span<const std::int32_t> targets,
                            View<const T> row_max, View<const T> sums);

// elementwise.cpp
template <typename T>
void add(int threads, View<const T> a, View<const T> b, View<T> out);
template <typename T>
void add_scaled(int threads, T scale, View<const T> x, View<T> y);
template <typename From, typename To>
void convert(int threads, View<const From> from, View<To> to);
/// To bf16, its bits in integers, to the nearest, ties to even; a NaN stays one.
void round_to_bf16(int threads, View<const float> from, View<std::uint16_t> to);
template <typename T>
double sum_squares(int threads, View<const T> x);

// optimizer.cpp
template <typename T>
void adamw(int threads, const OptimizerStep& settings, std::int64_t count, const T* gradient,
           T* parameter, T* first_moment, T* second_moment);
template <typename T>
void lamb_direction(int threads, const OptimizerStep& settings, std::int64_t count,
                    const T* gradient, const T* parameter, T* first_moment, T* second_moment,
                    T* update);

}  // namespace hydraulis::cpu
