#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/batch_plan.h"

namespace hydraulis {

/// Instructions of a pipeline stage, executed SPMD by its tp·cp devices.
enum class Op : std::uint8_t {
  gather_parameters,  ///< optimizer layout → this stage's layout, layers [layer_begin, layer_end)
  forward,
  backward,         ///< whole backward
  backward_input,   ///< zero-bubble: gradient of the input only
  backward_weight,  ///< zero-bubble: gradient of the weights only
  recompute,
  send_activation,     ///< to the next stage
  receive_activation,  ///< from the previous stage
  send_gradient,       ///< to the previous stage
  receive_gradient,    ///< from the next stage
  all_to_all,
  offload,
  fetch,
  reduce_gradients,  ///< this stage's layout → optimizer layout, layers [layer_begin, layer_end)
  gradient_norm,     ///< global norm over all devices, then clip
  optimizer_step,
  barrier,
};

/// Streams of a device on which instructions run in order; different streams run concurrently.
enum class StreamKind : std::uint8_t {
  compute,
  parameters,  ///< gather_parameters and reduce_gradients
  activation_send,
  activation_receive,
  gradient_send,
  gradient_receive,
  collective,  ///< all_to_all, gradient_norm, barrier
  host_copy,   ///< offload, fetch
};
inline constexpr int kStreams = 8;

/// Layer numbers of what stands outside the decoder layers, for reshard instructions: the embedding
/// is layer -1, the output head (with the last norm) is layer `model.layers`.
inline constexpr int kEmbeddingLayer = -1;

/// One instruction. Dependencies: earlier instructions on the same stream of the same stage; the
/// matching send or receive; and those of `depends_on`.
struct Instruction {
  Op op = Op::forward;
  StreamKind stream = StreamKind::compute;
  int micro_batch = -1;  ///< index in the pipeline's micro-batches, or -1
  int chunk = 0;         ///< which of the stage's runs of layers computes, sends or receives
  int peer = -1;         ///< global stage index of the other side of a send or receive
  int layer_begin = 0;
  int layer_end = 0;
  /// Bytes of one device: what the busiest device of the stage receives (gather), sends (reduce,
  /// send) or holds in the transfer, split by whether both ends sit in one node.
  std::int64_t intra_node_bytes = 0;
  std::int64_t inter_node_bytes = 0;
  int transfers = 0;  ///< point-to-point messages of the busiest device
  /// Indices of earlier instructions of the same stage that must have finished first.
  std::vector<int> depends_on;
};

/// Decoder layers [begin, end).
struct LayerRange {
  int begin = 0;
  int end = 0;
  bool operator==(const LayerRange&) const = default;
};

/// A pipeline stage: its place, its layers, its instruction stream.
struct Stage {
  int pipeline = 0;
  int index = 0;             ///< within the pipeline, 0 is first
  std::vector<int> devices;  ///< global device numbers, tensor-parallel rank fastest, then cp
  int layer_begin = 0;
  int layer_end = 0;  ///< decoder layers [begin, end) of its first run of layers, mostly its only
  /// Runs of layers behind the first, under an interleaved schedule: run c of stage s is the
  /// pipeline's virtual stage c · pp + s, and activations go from the last stage back to the first.
  std::vector<LayerRange> more_layers;
  bool has_embedding = false;
  bool has_head = false;
  std::vector<Instruction> instructions;
};

/// One pipeline (model replica) of a program.
struct PipelineProgram {
  Scheme scheme;
  std::vector<MicroBatch> micro_batches;  ///< in lowered order
  int first_stage = 0;                    ///< global index; its stages are consecutive
  /// Phases of an iteration run one after the other, a barrier between them, each on all devices;
  /// the last one's stages step the optimizer. Ascending over the pipelines.
  int phase = 0;
};

/// One iteration, ready to be executed: by the simulator in virtual time, by the runtime for real.
struct Program {
  std::string model_name;
  int layers = 0;
  int devices = 0;
  int devices_per_node = 0;
  OptimizerLayout optimizer;
  /// Sharded: every pass of a micro-batch gathers the parameters from all devices (the first layer
  /// before it, the others while it runs) and every backward reduces all gradients; a barrier
  /// before each pass stands for those collectives, in which all devices take part.
  ParameterSharding sharding = ParameterSharding::replicated;
  std::vector<PipelineProgram> pipelines;
  std::vector<Stage> stages;
};

/// The runs of layers of a stage, at least one.
int chunks_of(const Stage& stage);
LayerRange layers_of(const Stage& stage, int chunk);
/// Decoder layers of all its runs.
int layer_count(const Stage& stage);
bool holds_layer(const Stage& stage, int layer);

const char* to_string(Op op);
const char* to_string(StreamKind stream);

}  // namespace hydraulis
