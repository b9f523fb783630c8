#include "runtime/shard_context.h"

#include <cmath>

#include "base/error.h"

namespace hydraulis {

AttentionShape ShardContext::attention() const {
  return {heads(), kv_heads(), decoder->shape.head_dim, 1.0 / std::sqrt(decoder->shape.head_dim)};
}

void check_trainable(const DecoderSpec& decoder, const Scheme& scheme) {
  const ModelSpec& model = decoder.shape;
  if (model.qk_norm) {
    throw InputError("model {}: per-head query and key norms are not trained yet", model.name);
  }
  const bool keys_fit = model.kv_heads % scheme.tp == 0 || scheme.tp % model.kv_heads == 0;
  if (model.heads % scheme.tp != 0 || !keys_fit) {
    throw InfeasibleError(
        "scheme {}: {} query and {} key/value heads cannot be divided over tp={}; a divisor of {} "
        "fits",
        to_string(scheme), model.heads, model.kv_heads, scheme.tp, model.kv_heads);
  }
  if (model.ffn_hidden < scheme.tp) {
    throw InfeasibleError("scheme {}: tp={} is more than the {} feed-forward channels",
                          to_string(scheme), scheme.tp, model.ffn_hidden);
  }
}

ConstMatrix gather_rows(const ShardContext& context, ConstMatrix shard, Tensor& whole) {
  if (context.tensor_group == nullptr) return shard;
  whole = context.make(shard.rows * context.tp, shard.columns);
  context.tensor_group->all_gather(shard.data, whole.matrix.data, shard.elements(), shard.type,
                                   *context.compute);
  return whole.matrix;
}

Tensor scatter_rows(const ShardContext& context, Tensor partial) {
  if (context.tensor_group == nullptr) return partial;
  Tensor shard = context.make(partial.matrix.rows / context.tp, partial.matrix.columns);
  context.tensor_group->reduce_scatter(partial.matrix.data, shard.matrix.data,
                                       shard.matrix.elements(), shard.matrix.type,
                                       *context.compute);
  // The partial sum's memory goes back when this function ends, so the sum must be done.
  context.backend->device->synchronize(*context.compute);
  return shard;
}

}  // namespace hydraulis
