#pragma once

#include <memory>
#include <vector>

#include "kernels/communicator.h"
#include "planner/program/program.h"
#include "runtime/decoder.h"
#include "runtime/tensor.h"

namespace hydraulis {

/// One device's part in a stage: its ranks in the tensor- and context-parallel groups (nullptr
/// where a group has one member) and the shapes that follow.
struct ShardContext {
  const Backend* backend = nullptr;
  const DecoderSpec* decoder = nullptr;
  int tp = 1;
  int cp = 1;
  int tensor_rank = 0;
  int context_rank = 0;
  Communicator* tensor_group = nullptr;
  Communicator* context_group = nullptr;
  Recompute recompute = Recompute::none;
  Stream* compute = nullptr;
  Stream* ring = nullptr;

  int heads() const { return decoder->shape.heads / tp; }
  int kv_heads() const { return decoder->shape.kv_heads < tp ? 1 : decoder->shape.kv_heads / tp; }
  std::int64_t query_columns() const { return std::int64_t{heads()} * decoder->shape.head_dim; }
  std::int64_t key_columns() const { return std::int64_t{kv_heads()} * decoder->shape.head_dim; }
  std::int64_t vocabulary_rows() const { return (decoder->shape.vocab + tp - 1) / tp; }
  AttentionShape attention() const;

  Tensor make(std::int64_t rows, std::int64_t columns) const { return {*backend, rows, columns}; }
  /// Of the wide type, for what the kernels keep so.
  Tensor make_statistics(std::int64_t rows, std::int64_t columns) const {
    return {*backend, wide_type(backend->type), rows, columns};
  }
  Compute& kernels() const { return *backend->compute; }
};

/// Throws InfeasibleError when heads cannot be divided over tp: query heads must divide evenly, and
/// key/value heads evenly or be repeated evenly; per-head norms are not trained yet (InputError).
void check_trainable(const DecoderSpec& decoder, const Scheme& scheme);

/// Sequence parallelism between layers: shards [T/tp, columns] ⇄ whole [T, columns].
/// gather: the shards of all tensor-parallel ranks, one behind the other; a view of `shard` when tp
/// is 1 (`whole` stays empty then).
ConstMatrix gather_rows(const ShardContext& context, ConstMatrix shard, Tensor& whole);
/// Sum over the ranks of `partial` [T, columns], of which each keeps its rows; the partial itself,
/// unchanged, when tp is 1.
Tensor scatter_rows(const ShardContext& context, Tensor partial);

}  // namespace hydraulis
