#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "sim/replay.h"

namespace hydraulis::testing {

inline constexpr double kInside = 100;  ///< B/s of a device
inline constexpr double kBetween = 10;  ///< and between nodes

/// `nodes` of `per_node` devices with kInside and kBetween, without latency.
inline ClusterSpec slow_cluster(int nodes, int per_node) {
  ClusterSpec cluster;
  cluster.nodes = nodes;
  cluster.devices_per_node = per_node;
  cluster.intra_node = {kInside, 0};
  cluster.inter_node = {kBetween, 0};
  return cluster;
}

/// A program of stages that move data, each a pipeline of its own, on a slow cluster. Parameters
/// have an owner on every device unless the program is given another layout.
class MovingProgram {
 public:
  MovingProgram(int nodes, int per_node) : cluster(slow_cluster(nodes, per_node)) {
    program.devices = nodes * per_node;
    program.devices_per_node = per_node;
    program.layers = program.devices;
    program.optimizer = {program.devices, 1, 1};
  }

  /// A stage on these devices; returns its number.
  int stage(std::vector<int> devices) {
    PipelineProgram pipeline;
    pipeline.first_stage = static_cast<int>(program.stages.size());
    pipeline.scheme.tp = static_cast<int>(devices.size());
    program.pipelines.push_back(pipeline);
    Stage stage;
    stage.pipeline = pipeline.first_stage;
    stage.devices = std::move(devices);
    program.stages.push_back(std::move(stage));
    durations.seconds.emplace_back();
    return pipeline.first_stage;
  }

  /// Bytes of one device at full speed, and `more` seconds that are not theirs.
  Instruction& add(int stage, Op op, StreamKind stream, int near, int far, double more = 0) {
    Instruction instruction;
    instruction.op = op;
    instruction.stream = stream;
    instruction.intra_node_bytes = near;
    instruction.inter_node_bytes = far;
    instruction.transfers = 1;
    instruction.layer_end = 1;
    durations.seconds[static_cast<std::size_t>(stage)].push_back(near / kInside + far / kBetween +
                                                                 more);
    return program.stages[static_cast<std::size_t>(stage)].instructions.emplace_back(instruction);
  }

  void gather(int stage, int near, int far, int layer = 0, double more = 0) {
    Instruction& it = add(stage, Op::gather_parameters, StreamKind::parameters, near, far, more);
    it.layer_begin = layer;
    it.layer_end = layer + 1;
  }

  void send(int from, int to, int near, int far, double more = 0) {
    const int micro_batch = sends_++;
    for (const bool sends : {true, false}) {
      Instruction& it = add(sends ? from : to, sends ? Op::send_activation : Op::receive_activation,
                            sends ? StreamKind::activation_send : StreamKind::activation_receive,
                            near, far, more);
      it.peer = sends ? to : from;
      it.micro_batch = micro_batch;
    }
  }

  Replay run(bool flows = true, double wire_bytes = 1) const {
    ReplayOptions options;
    if (flows) options.network = std::make_shared<const Topology>(make_topology(cluster));
    options.wire_bytes = wire_bytes;
    return replay(program, durations, options);
  }

  double end(int stage, int instruction = 0) const {
    return run().spans[static_cast<std::size_t>(stage)][static_cast<std::size_t>(instruction)].end;
  }

  ClusterSpec cluster;
  Program program;
  Durations durations;

 private:
  int sends_ = 0;
};

}  // namespace hydraulis::testing
