#pragma once

#include "runtime/shard_context.h"
#include "runtime/token_layout.h"

namespace hydraulis {

/// Causal attention within sequences over all context-parallel ranks. `qkv` [T, q+k+v columns]
/// after rotary; out [T, q columns] and lse [T, heads] are written whole (rows of padding: 0 and
/// −∞). Keys and values go round the ring of ranks while attention to the last ones runs.
void ring_attention(const ShardContext& context, const TokenLayout& layout, ConstMatrix qkv,
                    Matrix out, Matrix lse);

/// Gradient: d_qkv [T, q+k+v columns] is written whole. Gradients of keys and values travel on with
/// them and come home after a full round.
void ring_attention_backward(const ShardContext& context, const TokenLayout& layout,
                             ConstMatrix qkv, ConstMatrix out, ConstMatrix lse, ConstMatrix d_out,
                             Matrix d_qkv);

}  // namespace hydraulis
