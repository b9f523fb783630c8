#include "planner/program/expand.h"

namespace hydraulis {

const char* to_string(OperationKind kind) {
  static constexpr const char* kNames[] = {"gemm",           "attention",     "element_wise",
                                           "embedding",      "cross_entropy", "all_gather",
                                           "reduce_scatter", "all_reduce",    "ring_exchange",
                                           "point_to_point", "reshard"};
  return kNames[static_cast<int>(kind)];
}

const char* to_string(OperationPart part) {
  static constexpr const char* kNames[] = {"embedding",
                                           "embedding_collective",
                                           "attention_norm",
                                           "query_key_value_collective",
                                           "query_key_value",
                                           "rotary",
                                           "attention_ring",
                                           "attention",
                                           "attention_output",
                                           "attention_output_collective",
                                           "mlp_norm",
                                           "gate_up_collective",
                                           "gate_up",
                                           "swiglu",
                                           "down",
                                           "down_collective",
                                           "residual",
                                           "final_norm",
                                           "head_collective",
                                           "head",
                                           "cross_entropy",
                                           "whole_instruction"};
  return kNames[static_cast<int>(part)];
}

const char* to_string(OperationPass pass) {
  static constexpr const char* kNames[] = {"forward", "recompute", "backward_input",
                                           "backward_weight"};
  return kNames[static_cast<int>(pass)];
}

}  // namespace hydraulis
