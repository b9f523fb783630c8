#include "planner/program/program.h"

namespace hydraulis {

int chunks_of(const Stage& stage) { return 1 + static_cast<int>(stage.more_layers.size()); }

LayerRange layers_of(const Stage& stage, int chunk) {
  if (chunk == 0) return {stage.layer_begin, stage.layer_end};
  return stage.more_layers[static_cast<std::size_t>(chunk) - 1];
}

int layer_count(const Stage& stage) {
  int count = 0;
  for (int chunk = 0; chunk < chunks_of(stage); ++chunk) {
    count += layers_of(stage, chunk).end - layers_of(stage, chunk).begin;
  }
  return count;
}

bool holds_layer(const Stage& stage, int layer) {
  for (int chunk = 0; chunk < chunks_of(stage); ++chunk) {
    const LayerRange range = layers_of(stage, chunk);
    if (layer >= range.begin && layer < range.end) return true;
  }
  return false;
}

const char* to_string(Op op) {
  switch (op) {
    case Op::gather_parameters:
      return "gather_parameters";
    case Op::forward:
      return "forward";
    case Op::backward:
      return "backward";
    case Op::backward_input:
      return "backward_input";
    case Op::backward_weight:
      return "backward_weight";
    case Op::recompute:
      return "recompute";
    case Op::send_activation:
      return "send_activation";
    case Op::receive_activation:
      return "receive_activation";
    case Op::send_gradient:
      return "send_gradient";
    case Op::receive_gradient:
      return "receive_gradient";
    case Op::all_to_all:
      return "all_to_all";
    case Op::offload:
      return "offload";
    case Op::fetch:
      return "fetch";
    case Op::reduce_gradients:
      return "reduce_gradients";
    case Op::gradient_norm:
      return "gradient_norm";
    case Op::optimizer_step:
      return "optimizer_step";
    case Op::barrier:
      return "barrier";
  }
  return "unknown";
}

const char* to_string(StreamKind stream) {
  switch (stream) {
    case StreamKind::compute:
      return "compute";
    case StreamKind::parameters:
      return "parameters";
    case StreamKind::activation_send:
      return "activation_send";
    case StreamKind::activation_receive:
      return "activation_receive";
    case StreamKind::gradient_send:
      return "gradient_send";
    case StreamKind::gradient_receive:
      return "gradient_receive";
    case StreamKind::collective:
      return "collective";
    case StreamKind::host_copy:
      return "host_copy";
  }
  return "unknown";
}

}  // namespace hydraulis
