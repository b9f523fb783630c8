#include "costmodel/profiler/kernel_case.h"

#include <array>
#include <cmath>
#include <stdexcept>

namespace hydraulis {
namespace {

constexpr double kEpsilon = 1e-5;

/// Sequences of `length` in a pack, the last one cut.
std::vector<AttentionSegment> causal_segments(std::int64_t tokens, std::int64_t length) {
  std::vector<AttentionSegment> segments;
  for (std::int64_t begin = 0; begin < tokens; begin += length) {
    const std::int64_t count = std::min(length, tokens - begin);
    segments.push_back({begin, count, begin, count, true});
  }
  return segments;
}

/// Row numbers that wander over a table, as tokens do over a vocabulary.
std::vector<std::int32_t> wandering_ids(std::int64_t count, std::int64_t rows) {
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(count));
  constexpr std::int64_t kStep = 7919;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::int32_t>(i * kStep % rows));
  }
  return ids;
}

/// Of the embedding that profiles look rows up in: a table need not fit to show what a row costs.
constexpr std::int64_t kEmbeddingRows = 4096;

}  // namespace

KernelCase::KernelCase(const Bench& bench, const KernelPoint& point, int sets) : bench_(bench) {
  for (int i = 0; i < sets; ++i) calls_.push_back(make_call(point));
}

std::int64_t KernelCase::allocated_bytes() {
  bench_.device->synchronize(*bench_.stream);
  bench_.device->reset_peak();
  const std::int64_t before = bench_.device->memory().allocated;
  launch();
  bench_.device->synchronize(*bench_.stream);
  return bench_.device->memory().peak - before;
}

Matrix KernelCase::make(DataType type, std::int64_t rows, std::int64_t columns, bool positive) {
  buffers_.emplace_back(*bench_.device, rows * columns * size_of(type));
  fill(bench_, buffers_.back(), type, positive);
  return {buffers_.back().data(), type, rows, columns, columns};
}

Matrix KernelCase::matrix(std::int64_t rows, std::int64_t columns, bool positive) {
  return make(bench_.type, rows, columns, positive);
}

Matrix KernelCase::wide(std::int64_t rows, std::int64_t columns, bool positive) {
  return make(wide_type(bench_.type), rows, columns, positive);
}

std::function<void()> KernelCase::make_call(const KernelPoint& point) {
  switch (point.shape.kernel) {
    case Kernel::gemm_forward:
    case Kernel::gemm_input_gradient:
    case Kernel::gemm_weight_gradient:
      return make_gemm(point);
    case Kernel::attention:
    case Kernel::attention_backward:
      return make_attention(point);
    case Kernel::cross_entropy_max:
    case Kernel::cross_entropy_sums:
    case Kernel::cross_entropy_backward:
      return make_cross_entropy(point);
    default:
      return make_row_wise(point);
  }
}

std::function<void()> KernelCase::make_gemm(const KernelPoint& point) {
  const Matrix x = matrix(point.tokens, point.shape.inputs);
  const Matrix y = matrix(point.tokens, point.shape.outputs);
  const bool into_weight = point.shape.kernel == Kernel::gemm_weight_gradient;
  const Matrix w = into_weight ? wide(point.shape.outputs, point.shape.inputs)
                               : matrix(point.shape.outputs, point.shape.inputs);
  Compute& compute = *bench_.compute;
  Stream& stream = *bench_.stream;
  switch (point.shape.kernel) {
    case Kernel::gemm_forward:
      return [=, &compute, &stream] { compute.gemm(false, true, 1, x, w, 0, y, stream); };
    case Kernel::gemm_input_gradient:
      return [=, &compute, &stream] { compute.gemm(false, false, 1, y, w, 0, x, stream); };
    default:
      return [=, &compute, &stream] { compute.gemm(true, false, 1, y, x, 1, w, stream); };
  }
}

std::function<void()> KernelCase::make_attention(const KernelPoint& point) {
  const AttentionShape shape{point.shape.heads, point.shape.kv_heads, point.shape.head_dim,
                             1 / std::sqrt(point.shape.head_dim)};
  const std::int64_t queries = std::int64_t{shape.heads} * shape.head_dim;
  const std::int64_t keys = std::int64_t{shape.kv_heads} * shape.head_dim;
  const Matrix qkv = matrix(point.tokens, queries + 2 * keys);
  const Matrix out = matrix(point.tokens, queries);
  const Matrix lse = wide(point.tokens, shape.heads);
  const Matrix q = qkv.column_range(0, queries);
  const Matrix k = qkv.column_range(queries, keys);
  const Matrix v = qkv.column_range(queries + keys, keys);
  Compute& compute = *bench_.compute;
  Stream& stream = *bench_.stream;
  const auto segments = causal_segments(point.tokens, point.length);
  if (point.shape.kernel == Kernel::attention) {
    return [=, &compute, &stream] {
      compute.attention(shape, segments, q, k, v, false, out, lse, stream);
    };
  }
  // What the backward is given must be of this attention, or its exponentials overflow.
  compute.attention(shape, segments, q, k, v, false, out, lse, stream);
  const Matrix d_out = matrix(point.tokens, queries);
  const Matrix d_qkv = matrix(point.tokens, queries + 2 * keys);
  const Matrix delta = wide(point.tokens, shape.heads);
  const Matrix dq = d_qkv.column_range(0, queries);
  const Matrix dk = d_qkv.column_range(queries, keys);
  const Matrix dv = d_qkv.column_range(queries + keys, keys);
  return [=, &compute, &stream] {
    compute.attention_backward(shape, segments, q, k, v, d_out, lse, delta, dq, dk, dv, stream);
  };
}

std::function<void()> KernelCase::make_cross_entropy(const KernelPoint& point) {
  const std::int64_t vocabulary = point.shape.width;
  const Matrix logits = matrix(point.tokens, vocabulary);
  const Matrix row_max = wide(point.tokens, 1, true);
  const Matrix sums = wide(point.tokens, 2, true);
  Compute& compute = *bench_.compute;
  Stream& stream = *bench_.stream;
  const std::vector<std::int32_t> targets = wandering_ids(point.tokens, vocabulary);
  if (point.shape.kernel == Kernel::cross_entropy_max) {
    return
        [=, &compute, &stream] { compute.cross_entropy_max(logits, vocabulary, row_max, stream); };
  }
  compute.cross_entropy_max(logits, vocabulary, row_max, stream);
  compute.cross_entropy_sums(logits, vocabulary, 0, targets, row_max, sums, stream);
  if (point.shape.kernel == Kernel::cross_entropy_sums) {
    return [=, &compute, &stream] {
      compute.cross_entropy_sums(logits, vocabulary, 0, targets, row_max, sums, stream);
    };
  }
  return [=, &compute, &stream] {
    compute.cross_entropy_backward(logits, vocabulary, 0, targets, row_max, sums, stream);
  };
}

std::function<void()> KernelCase::make_row_wise(const KernelPoint& point) {
  const std::int64_t rows = point.tokens;
  const std::int64_t width = point.shape.width;
  Compute& compute = *bench_.compute;
  Device& device = *bench_.device;
  Stream& stream = *bench_.stream;
  switch (point.shape.kernel) {
    case Kernel::rms_norm: {
      const Matrix x = matrix(rows, width);
      const Matrix weight = matrix(1, width);
      const Matrix y = matrix(rows, width);
      const Matrix scale = wide(rows, 1);
      return [=, &compute, &stream] { compute.rms_norm(x, weight, kEpsilon, y, scale, stream); };
    }
    case Kernel::rms_norm_backward: {
      const Matrix dy = matrix(rows, width);
      const Matrix x = matrix(rows, width);
      const Matrix dx = matrix(rows, width);
      const Matrix weight = matrix(1, width);
      const Matrix d_weight = wide(1, width);
      const Matrix scale = wide(rows, 1, true);
      return [=, &compute, &stream] {
        compute.rms_norm_backward(dy, x, weight, scale, true, dx, d_weight, stream);
      };
    }
    case Kernel::rotary_table: {
      const Matrix table = wide(rows, width);
      const std::vector<std::int32_t> positions = wandering_ids(rows, rows);
      std::vector<double> frequencies;
      for (std::int64_t i = 0; i < width / 2; ++i) {
        frequencies.push_back(
            std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(width)));
      }
      return
          [=, &compute, &stream] { compute.rotary_table(positions, frequencies, table, stream); };
    }
    case Kernel::rotary: {
      // Heads of an even size that divides the width; the work of a row does not depend on it.
      std::int64_t head = 64;
      while (width % head != 0) head -= 2;
      const Matrix x = matrix(rows, width);
      const Matrix table = wide(rows, head);
      const std::vector<std::int32_t> positions = wandering_ids(rows, rows);
      const std::vector<double> frequencies(static_cast<std::size_t>(head / 2), 0.01);
      compute.rotary_table(positions, frequencies, table, stream);
      const auto heads = static_cast<int>(width / head);
      return [=, &compute, &stream] { compute.rotary(x, heads, table, false, stream); };
    }
    case Kernel::attention_delta: {
      std::int64_t head = 64;
      while (width % head != 0) --head;
      const AttentionShape shape{static_cast<int>(width / head), static_cast<int>(width / head),
                                 static_cast<int>(head), 1};
      const Matrix out = matrix(rows, width);
      const Matrix d_out = matrix(rows, width);
      const Matrix delta = wide(rows, width / head);
      return [=, &compute, &stream] { compute.attention_delta(shape, out, d_out, delta, stream); };
    }
    case Kernel::swiglu: {
      const Matrix gate_up = matrix(rows, 2 * width);
      const Matrix out = matrix(rows, width);
      return [=, &compute, &stream] { compute.swiglu(gate_up, out, stream); };
    }
    case Kernel::swiglu_backward: {
      // Not in place: again and again that would end in denormal numbers.
      const Matrix d_out = matrix(rows, width);
      const Matrix gate_up = matrix(rows, 2 * width);
      const Matrix d_gate_up = matrix(rows, 2 * width);
      return [=, &compute, &stream] { compute.swiglu_backward(d_out, gate_up, d_gate_up, stream); };
    }
    case Kernel::embedding:
    case Kernel::embedding_backward: {
      const bool backward = point.shape.kernel == Kernel::embedding_backward;
      const Matrix table = backward ? wide(kEmbeddingRows, width) : matrix(kEmbeddingRows, width);
      const Matrix out = matrix(rows, width);
      const std::vector<std::int32_t> ids = wandering_ids(rows, kEmbeddingRows);
      if (!backward) {
        return [=, &compute, &stream] { compute.embedding(ids, 0, table, out, stream); };
      }
      return [=, &compute, &stream] { compute.embedding_backward(ids, 0, out, table, stream); };
    }
    case Kernel::add: {
      const Matrix a = matrix(rows, width);
      const Matrix b = matrix(rows, width);
      return [=, &compute, &stream] { compute.add(a, b, b, stream); };
    }
    case Kernel::convert: {
      const Matrix from = wide(rows, width);
      const Matrix to = matrix(rows, width);
      return [=, &compute, &stream] { compute.convert(from, to, stream); };
    }
    case Kernel::zero: {
      const Matrix x = matrix(rows, width);
      return [=, &device, &stream] { device.zero(x.data, x.elements() * size_of(x.type), stream); };
    }
    case Kernel::sum_squares: {
      const Matrix x = wide(1, rows * width);
      return [=, &compute, &stream] { compute.sum_squares(x, stream); };
    }
    case Kernel::adamw: {
      const Matrix gradient = wide(1, rows * width);
      const Matrix parameter = wide(1, rows * width);
      const Matrix first = wide(1, rows * width);
      const Matrix second = wide(1, rows * width, true);
      OptimizerStep step;
      step.learning_rate = 1e-4;
      step.weight_decay = 0.1;
      const std::array whole{OptimizerStretch{0, rows * width}};
      return [=, &compute, &stream] {
        compute.adamw(step, whole, gradient, parameter, first, second, stream);
      };
    }
    default:
      throw std::logic_error("a kernel that the profiler cannot call");
  }
}

}  // namespace hydraulis
