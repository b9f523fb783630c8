#pragma once

#include <cstdint>
#include <vector>

#include "costmodel/model_spec.h"
#include "planner/program/program.h"

namespace hydraulis {

/// What a typed operation is, and so what its cost depends on.
enum class OperationKind : std::uint8_t {
  gemm,            ///< m, n, k
  attention,       ///< causal, within sequences: sum_squares, lengths
  element_wise,    ///< bytes read and written
  embedding,       ///< rows looked up (or their gradients added): bytes
  cross_entropy,   ///< over this device's part of the vocabulary: bytes
  all_gather,      ///< bytes of the whole, group_size
  reduce_scatter,  ///< bytes of the whole, group_size
  all_reduce,      ///< bytes, group_size
  ring_exchange,   ///< send one block to the next of the ring, receive one: bytes of a block
  point_to_point,  ///< bytes
  reshard,         ///< bytes of the busiest device
};

/// Place of an operation in a layer.
enum class OperationPart : std::uint8_t {
  embedding,
  embedding_collective,
  attention_norm,
  query_key_value_collective,
  query_key_value,
  rotary,
  attention_ring,
  attention,
  attention_output,
  attention_output_collective,
  mlp_norm,
  gate_up_collective,
  gate_up,
  swiglu,
  down,
  down_collective,
  residual,
  final_norm,
  head_collective,
  head,
  cross_entropy,
  whole_instruction,  ///< of instructions that are one operation
};

/// Why it runs.
enum class OperationPass : std::uint8_t { forward, recompute, backward_input, backward_weight };

/// Devices that do it together.
enum class OperationGroup : std::uint8_t { none, tensor, context, all };

/// One typed operation on one device of a stage (all its devices do the same).
struct Operation {
  /// Same for the same place, pass and layer in every executor, whatever the options: with the
  /// instruction's index it joins predictions and measurements.
  std::uint64_t id = 0;
  OperationKind kind = OperationKind::gemm;
  OperationPart part = OperationPart::whole_instruction;
  OperationPass pass = OperationPass::forward;
  OperationGroup group = OperationGroup::none;
  StreamKind stream = StreamKind::compute;
  int layer = 0;
  int step = 0;  ///< of the context-parallel ring
  int group_size = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  double sum_squares = 0;              ///< tokens²; this device's share of the ring step's Σs²
  std::vector<std::uint32_t> lengths;  ///< whole sequences, tokens
  double flops = 0;                    ///< executed by this device
  std::int64_t bytes = 0;              ///< moved, in memory or over links as the kind says
};

/// Expands an instruction of a program into typed operations in the order in which they run.
/// Forward, backward (whole or in parts) and recompute become the layers' operations with sequence
/// parallelism: activations between layers are split over tp along tokens, gathered before column-
/// split products and reduce-scattered after row-split ones. Context parallelism splits every
/// sequence evenly over cp; keys and values go round a ring while attention runs. The backward
/// gathers the products' inputs once more for the weights' gradients. Recomputation (of the
/// scheme) precedes each layer's backward: `full` the whole layer, `selective` the norms and the
/// gated product. Padding runs through everything but attention. Other instructions are one
/// operation. Throws InputError when `stage` or `instruction` is out of range.
std::vector<Operation> expand(const Program& program, const ModelSpec& model, int stage,
                              int instruction);

const char* to_string(OperationKind kind);
const char* to_string(OperationPart part);
const char* to_string(OperationPass pass);

}  // namespace hydraulis
