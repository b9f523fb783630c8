#include "report/validate_model.h"

#include <algorithm>
#include <cmath>

#include "costmodel/memory.h"
#include "planner/program/expand.h"

namespace hydraulis {
namespace {

constexpr double kElement = 2;  // bytes of half precision
/// Unfused attention, bytes of memory traffic a score: products write and read it, mask and softmax
/// and dropout read and write it; its backward twice that.
constexpr double kScoreBytes = 12;
/// Adam: gradient, master and moments read, all but the gradient written, half-precision copy.
constexpr double kStepBytes = 30;
constexpr double kOptimizerBytes = 12;  // fp32 master and moments
constexpr double kSmoothness = 3;       // of the maximum of kernels and launches

double value(const PublicValues& values, PublicParameter parameter) {
  return values[static_cast<std::size_t>(parameter)];
}

Recompute recompute_of(const PublicRow& row, const PublicDevice& device) {
  return row.recompute.value_or(device.recompute);
}

/// Devices of a group that share a node, its members `stride` devices apart.
int members_in_node(int group, int stride, const PublicDevice& device) {
  return std::clamp(device.devices_per_node / std::max(stride, 1), 1, group);
}

/// An all-reduce of `bytes` among `group` devices: one ring, in which those of a node are
/// neighbours. Across nodes it crosses each node's network cards, which the node's rings share.
void add_all_reduce(PublicWork& work, double bytes, int group, int stride, double share,
                    const PublicDevice& device) {
  if (group <= 1) return;
  const int members = members_in_node(group, stride, device);
  work.collective_seconds += share * device.all_reduce.seconds(bytes, members);
  if (members == group) return;
  const double bandwidth =
      device.node_bandwidth_bytes_per_second * members / device.devices_per_node;
  work.inter_node_seconds += share * 2 * (group - 1.0) / group * bytes / bandwidth;
}

class WorkOf {
 public:
  WorkOf(const PublicRow& row, const PublicDevice& device, const ModelSpec& model)
      : row_(row),
        device_(device),
        model_(model),
        sequence_parallel_(row.sequence_parallel.value_or(device.sequence_parallel)),
        heads_((model.heads + row.tp - 1) / row.tp) {}

  PublicWork layer() {
    PublicWork work;
    add_stage(work, 1, false);
    work.launches = recompute_of(row_, device_) == Recompute::full ? 4 : 3;
    return work;
  }

  PublicWork ends() {
    PublicWork work;
    add_stage(work, 0, true);
    return work;
  }

 private:
  /// One stage of a program with one micro-batch, forward and backward.
  void add_stage(PublicWork& work, int layers, bool is_end) {
    Program program;
    PipelineProgram pipeline;
    pipeline.scheme.tp = row_.tp;
    pipeline.scheme.cp = row_.cp;
    pipeline.scheme.recompute = recompute_of(row_, device_);
    MicroBatch batch;
    batch.lengths.assign(static_cast<std::size_t>(row_.micro_batch),
                         static_cast<std::uint32_t>(row_.sequence_length));
    pipeline.micro_batches.push_back(std::move(batch));
    program.pipelines.push_back(std::move(pipeline));
    Stage stage;
    stage.layer_end = layers;
    stage.has_embedding = is_end;
    stage.has_head = is_end;
    for (const Op op : {Op::forward, Op::backward}) {
      Instruction instruction;
      instruction.op = op;
      instruction.micro_batch = 0;
      stage.instructions.push_back(instruction);
    }
    program.stages.push_back(std::move(stage));
    for (const int instruction : {0, 1}) {
      for (const Operation& operation : expand(program, model_, 0, instruction)) {
        add(work, operation);
      }
    }
  }

  void add(PublicWork& work, const Operation& operation) const {
    const double bandwidth = device_.memory_bandwidth_bytes_per_second;
    const auto bytes = static_cast<double>(operation.bytes);
    switch (operation.kind) {
      case OperationKind::gemm:
        add_gemm(work, operation);
        break;
      case OperationKind::attention:
        add_attention(work, operation);
        break;
      case OperationKind::element_wise:
      case OperationKind::embedding:
      case OperationKind::cross_entropy:
        work.element_seconds += repeats(operation.part) * bytes / bandwidth;
        break;
      case OperationKind::all_gather:
      case OperationKind::reduce_scatter:
      case OperationKind::all_reduce:
        add_collective(work, operation);
        break;
      case OperationKind::ring_exchange:
        // One block to the next device: what an all-reduce of half of it puts on the wire.
        work.collective_seconds += device_.all_reduce.seconds(bytes / 2, device_.devices_per_node);
        break;
      case OperationKind::point_to_point:
      case OperationKind::reshard:
        break;
    }
  }

  void add_gemm(PublicWork& work, const Operation& operation) const {
    const bool is_odd = operation.part == OperationPart::head && model_.vocab % 8 != 0;
    (is_odd ? work.odd_gemm_seconds : work.gemm_seconds) += operation.flops / device_.peak_flops;
    work.operand_seconds +=
        static_cast<double>(operation.bytes) / device_.memory_bandwidth_bytes_per_second;
  }

  void add_attention(PublicWork& work, const Operation& operation) const {
    if (device_.fused_attention) {
      work.attention_seconds += operation.flops / device_.peak_flops;
      return;
    }
    const bool is_backward = operation.pass == OperationPass::backward_input;
    // Selective recomputation runs the core of attention once more in the backward.
    const bool again = recompute_of(row_, device_) == Recompute::selective && is_backward;
    const double passes = (is_backward ? 2 : 1) + (again ? 1 : 0);
    const double causal = operation.flops / (is_backward ? 2 : 1);  // of a forward
    work.gemm_seconds += passes * 2 * causal / device_.peak_flops;
    work.element_seconds += passes * kScoreBytes * operation.sum_squares * heads_ /
                            device_.memory_bandwidth_bytes_per_second;
  }

  void add_collective(PublicWork& work, const Operation& operation) const {
    // Without sequence parallelism gather and scatter are the halves of one all-reduce, and the
    // inputs of products are kept whole.
    if (!sequence_parallel_ && operation.pass == OperationPass::backward_weight) return;
    add_all_reduce(work, static_cast<double>(operation.bytes), operation.group_size, 1, 0.5,
                   device_);
  }

  /// How often an element-wise operation is done by a tensor-parallel group.
  double repeats(OperationPart part) const {
    if (sequence_parallel_) return 1;
    const bool between_products =
        part == OperationPart::attention_norm || part == OperationPart::mlp_norm ||
        part == OperationPart::residual || part == OperationPart::final_norm;
    return between_products ? row_.tp : 1;
  }

  const PublicRow& row_;
  const PublicDevice& device_;
  const ModelSpec& model_;
  bool sequence_parallel_;
  double heads_;
};

/// Kernels of `work`; the odd vocabulary's product by itself is as fast as any.
double kernel_seconds(const PublicWork& work, const PublicValues& values) {
  using enum PublicParameter;
  return value(values, gemm) *
             (work.gemm_seconds + value(values, odd_vocabulary) * work.odd_gemm_seconds) +
         value(values, operands) * work.operand_seconds +
         value(values, attention) * work.attention_seconds +
         value(values, element_wise) * work.element_seconds;
}

double link_seconds(const PublicWork& work, const PublicValues& values) {
  return value(values, PublicParameter::collective) * work.collective_seconds +
         value(values, PublicParameter::inter_node) * work.inter_node_seconds;
}

}  // namespace

ModelSpec public_model(const PublicRow& row, const PublicDevice& device) {
  ModelSpec model = row.model;
  if (model.vocab == 0) model.vocab = device.vocab;
  if (row.tp > 1) {
    const int unit = 128 * row.tp;
    model.vocab = (model.vocab + unit - 1) / unit * unit;
  }
  return model;
}

PublicRowWork public_work(const PublicRow& row, const PublicDevice& device) {
  const ModelSpec model = public_model(row, device);
  WorkOf of(row, device, model);
  PublicRowWork work;
  work.layer = of.layer();
  work.ends = of.ends();
  const int layers = (model.layers + row.pp - 1) / row.pp;
  work.layers = layers;
  work.micro_batches = row.micro_batches;
  work.bubble = (row.pp - 1.0) / row.interleave;
  const double tokens = static_cast<double>(row.micro_batch) * row.sequence_length / row.cp;
  if (row.pp > 1) work.transfer_bytes = 2 * kElement * tokens * model.hidden * row.interleave;
  const double parameters =
      std::max(detail::device_parameters(model, row.tp, row.pp, 0, layers),
               detail::device_parameters(model, row.tp, row.pp, row.pp - 1, layers));
  const int replicas = row.dp * row.cp;
  if (device.sharded_optimizer) {
    add_all_reduce(work.reduction, device.gradient_bytes * parameters, replicas, row.tp, 0.5,
                   device);
    add_all_reduce(work.reduction, kElement * parameters, replicas, row.tp, 0.5, device);
  } else {
    add_all_reduce(work.reduction, device.gradient_bytes * parameters, replicas, row.tp, 1, device);
  }
  work.optimizer_seconds = kStepBytes * parameters / (device.sharded_optimizer ? replicas : 1) /
                           device.memory_bandwidth_bytes_per_second;
  return work;
}

double predicted_seconds(const PublicRowWork& work, const PublicValues& values) {
  using enum PublicParameter;
  const double kernels = kernel_seconds(work.layer, values);
  const double launches = value(values, launch) * work.layer.launches;
  const double layer =
      std::pow(std::pow(kernels, kSmoothness) + std::pow(launches, kSmoothness), 1 / kSmoothness) +
      link_seconds(work.layer, values);
  const double stage = work.layers * layer + value(values, micro_batch) +
                       value(values, transfer) * work.transfer_bytes;
  const double ends = kernel_seconds(work.ends, values) + link_seconds(work.ends, values);
  return (work.micro_batches + work.bubble) * stage + work.micro_batches * ends +
         link_seconds(work.reduction, values) + value(values, optimizer) * work.optimizer_seconds +
         value(values, iteration);
}

double predicted_bytes(const PublicRow& row, const PublicDevice& device,
                       const PublicValues& values) {
  const ModelSpec model = public_model(row, device);
  const int layers = (model.layers + row.pp - 1) / row.pp;
  const double shards = device.sharded_optimizer ? row.dp * row.cp : 1;
  const double state_bytes = kElement + device.gradient_bytes + kOptimizerBytes / shards;
  const double tokens = static_cast<double>(row.micro_batch) * row.sequence_length / row.cp;
  const Recompute recompute = recompute_of(row, device);
  const double activation = tokens * detail::layer_activation_bytes(model, {}, row.tp, recompute);
  const double copies = value(values, PublicParameter::layer_copies) *
                        static_cast<double>(layer_parameters(model)) / row.tp;
  double most = 0;
  for (const int stage : {0, row.pp - 1}) {
    const int live = std::min(row.pp - stage, row.micro_batches);
    double bytes = state_bytes * detail::device_parameters(model, row.tp, row.pp, stage, layers) +
                   copies + live * layers * activation;
    if (stage == row.pp - 1) {
      bytes += value(values, PublicParameter::logits) * tokens * model.vocab / row.tp;
    }
    most = std::max(most, bytes);
  }
  return most;
}

double formula_seconds(const PublicRow& row, const PublicDevice& device) {
  const ModelSpec model = public_model(row, device);
  const double sequences = static_cast<double>(row.micro_batch) * row.micro_batches * row.dp;
  const double length = row.sequence_length;
  const double again = recompute_of(row, device) == Recompute::full ? 4.0 / 3 : 1;
  const double flops =
      again * training_flops(model, sequences * length, sequences * length * length);
  return flops / row.devices() / device.peak_flops *
         (1 + (row.pp - 1.0) / row.interleave / row.micro_batches);
}

}  // namespace hydraulis
