#include "runtime/ring_attention.h"

#include <array>
#include <limits>
#include <vector>

namespace hydraulis {
namespace {

struct Columns {
  std::int64_t queries;
  std::int64_t keys;
  explicit Columns(const ShardContext& context)
      : queries(context.query_columns()), keys(context.key_columns()) {}
  ConstMatrix q(ConstMatrix qkv) const { return qkv.column_range(0, queries); }
  ConstMatrix kv(ConstMatrix qkv) const { return qkv.column_range(queries, 2 * keys); }
  Matrix q(Matrix qkv) const { return qkv.column_range(0, queries); }
  Matrix kv(Matrix qkv) const { return qkv.column_range(queries, 2 * keys); }
  ConstMatrix k(ConstMatrix kv) const { return kv.column_range(0, keys); }
  ConstMatrix v(ConstMatrix kv) const { return kv.column_range(keys, keys); }
  Matrix k(Matrix kv) const { return kv.column_range(0, keys); }
  Matrix v(Matrix kv) const { return kv.column_range(keys, keys); }
};

void zero(const ShardContext& context, Matrix matrix) {
  context.backend->device->zero(matrix.data, matrix.elements() * size_of(matrix.type),
                                *context.compute);
}

/// No key seen yet.
void start_lse(const ShardContext& context, Matrix lse) {
  const std::int64_t bytes = lse.elements() * size_of(lse.type);
  std::vector<float> singles;
  std::vector<double> doubles;
  const void* from = nullptr;
  if (lse.type == DataType::f64) {
    doubles.assign(lse.elements(), -std::numeric_limits<double>::infinity());
    from = doubles.data();
  } else {
    singles.assign(lse.elements(), -std::numeric_limits<float>::infinity());
    from = singles.data();
  }
  context.backend->device->copy_to_device(lse.data, from, bytes, *context.compute);
  context.backend->device->synchronize(*context.compute);
}

/// Starts passing `current` on to the next rank of the ring and receiving into `incoming`.
std::shared_ptr<Event> pass_on(const ShardContext& context, const Tensor& current,
                               const Tensor& incoming) {
  Device& device = *context.backend->device;
  device.wait(*context.ring, device.record(*context.compute));
  const int next = (context.context_rank + 1) % context.cp;
  const int previous = (context.context_rank + context.cp - 1) % context.cp;
  const std::array<Message, 2> messages{
      Message{next, true, current.matrix.data, current.bytes()},
      Message{previous, false, incoming.matrix.data, incoming.bytes()}};
  context.context_group->exchange(messages, Channel::ring, *context.ring);
  return device.record(*context.ring);
}

}  // namespace

void ring_attention(const ShardContext& context, const TokenLayout& layout, ConstMatrix qkv,
                    Matrix out, Matrix lse) {
  const Columns columns(context);
  Device& device = *context.backend->device;
  Compute& kernels = context.kernels();
  zero(context, out);
  start_lse(context, lse);
  if (context.cp == 1) {
    const ConstMatrix kv = columns.kv(qkv);
    kernels.attention(context.attention(), layout.segments(0), columns.q(qkv), columns.k(kv),
                      columns.v(kv), false, out, lse, *context.compute);
    return;
  }
  Tensor current = context.make(qkv.rows, 2 * columns.keys);
  Tensor incoming = context.make(qkv.rows, 2 * columns.keys);
  kernels.convert(columns.kv(qkv), current.matrix, *context.compute);
  for (int step = 0; step < context.cp; ++step) {
    const int from = (context.context_rank + context.cp - step) % context.cp;
    std::shared_ptr<Event> passed;
    if (step + 1 < context.cp) passed = pass_on(context, current, incoming);
    const ConstMatrix kv = current.matrix;
    kernels.attention(context.attention(), layout.segments(from), columns.q(qkv), columns.k(kv),
                      columns.v(kv), true, out, lse, *context.compute);
    if (passed) device.wait(*context.compute, passed);
    std::swap(current, incoming);
  }
  device.synchronize(*context.compute);
}

void ring_attention_backward(const ShardContext& context, const TokenLayout& layout,
                             ConstMatrix qkv, ConstMatrix out, ConstMatrix lse, ConstMatrix d_out,
                             Matrix d_qkv) {
  const Columns columns(context);
  Device& device = *context.backend->device;
  Compute& kernels = context.kernels();
  Tensor delta = context.make_statistics(qkv.rows, context.heads());
  kernels.attention_delta(context.attention(), out, d_out, delta.matrix, *context.compute);
  zero(context, d_qkv);
  if (context.cp == 1) {
    const ConstMatrix kv = columns.kv(qkv);
    const Matrix d_kv = columns.kv(d_qkv);
    kernels.attention_backward(context.attention(), layout.segments(0), columns.q(qkv),
                               columns.k(kv), columns.v(kv), d_out, lse, delta.matrix,
                               columns.q(d_qkv), columns.k(d_kv), columns.v(d_kv),
                               *context.compute);
    device.synchronize(*context.compute);
    return;
  }
  Tensor kv = context.make(qkv.rows, 2 * columns.keys);
  Tensor next_kv = context.make(qkv.rows, 2 * columns.keys);
  Tensor d_kv = context.make(qkv.rows, 2 * columns.keys);
  Tensor next_d_kv = context.make(qkv.rows, 2 * columns.keys);
  Tensor part = context.make(qkv.rows, 2 * columns.keys);
  kernels.convert(columns.kv(qkv), kv.matrix, *context.compute);
  std::shared_ptr<Event> gradients_passed;
  for (int step = 0; step < context.cp; ++step) {
    const int from = (context.context_rank + context.cp - step) % context.cp;
    std::shared_ptr<Event> passed;
    if (step + 1 < context.cp) passed = pass_on(context, kv, next_kv);
    // The first step starts the sum; later ones add to what came with the keys and values.
    Tensor& sum = step == 0 ? d_kv : part;
    zero(context, sum.matrix);
    kernels.attention_backward(context.attention(), layout.segments(from), columns.q(qkv),
                               columns.k(ConstMatrix(kv.matrix)), columns.v(ConstMatrix(kv.matrix)),
                               d_out, lse, delta.matrix, columns.q(d_qkv), columns.k(sum.matrix),
                               columns.v(sum.matrix), *context.compute);
    if (step > 0) {
      device.wait(*context.compute, gradients_passed);
      kernels.add(next_d_kv.matrix, part.matrix, d_kv.matrix, *context.compute);
    }
    gradients_passed = pass_on(context, d_kv, next_d_kv);
    if (passed) device.wait(*context.compute, passed);
    std::swap(kv, next_kv);
  }
  device.wait(*context.compute, gradients_passed);
  kernels.convert(next_d_kv.matrix, columns.kv(d_qkv), *context.compute);
  device.synchronize(*context.compute);
}

}  // namespace hydraulis
