#include "sim/communication_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "planner/program/reshard.h"

namespace hydraulis::detail {
namespace {

constexpr double kFlagBytes = 8;     ///< what a barrier sums, a norm's square
constexpr double kProgramBytes = 2;  ///< of a number, as programs count what moves

}  // namespace

double parameters_of(const ModelSpec& model, int layer) {
  if (layer == kEmbeddingLayer) return static_cast<double>(embedding_parameters(model));
  return static_cast<double>(layer == model.layers ? head_parameters(model)
                                                   : layer_parameters(model));
}

std::string collectives_text(const CostModel& model, const CostingOptions& options) {
  const CollectiveNetwork network = collective_network(model.cluster);
  const std::string whose =
      network.generation == NcclGeneration::none
          ? "by the links alone"
          : fmt::format(
                "by NCCL's public cost table for {} (a prior, not measured: {:.4g} and "
                "{:.4g} GB/s of the links count)",
                to_string(network.generation),
                options.bandwidth_scale * network.inside.bandwidth_bytes_per_second / 1e9,
                options.bandwidth_scale * network.between.bandwidth_bytes_per_second / 1e9);
  return fmt::format("collectives: {}, {}, over the devices that really take part",
                     collectives_name(options.collectives), whose);
}

CommunicationCost::CommunicationCost(const Program& program, const CostModel& model,
                                     const CostingOptions& options)
    : program_(program),
      model_(model),
      network_(collective_network(model.cluster, options.latency_scale, options.bandwidth_scale)),
      scale_{options.latency_scale, options.bandwidth_scale},
      algorithm_(options.collectives.value()),
      topology_(make_topology(model.cluster, options.bandwidth_scale, options.latency_scale)),
      everyone_(static_cast<std::size_t>(std::max(1, program.devices))) {
  std::iota(everyone_.begin(), everyone_.end(), 0);
  int replicas = 0;
  alike_ = !program.pipelines.empty() && program.pipelines.back().phase == 0;
  for (const PipelineProgram& pipeline : program.pipelines) {
    alike_ = alike_ && pipeline.scheme.tp == program.optimizer.tp;
    replicas += pipeline.scheme.cp;
  }
  alike_ = alike_ && replicas == program.optimizer.dp;
  global_seconds_ = group(Collective::all_reduce, everyone_, kFlagBytes);
}

double CommunicationCost::seconds(const Stage& stage, const Instruction& instruction) const {
  switch (instruction.op) {
    case Op::gather_parameters:
    case Op::reduce_gradients:
      return is_uniform(stage, instruction) ? reshard(instruction) : messages(instruction);
    case Op::all_to_all:
      return exchange(stage, instruction);
    default:
      return messages(instruction);
  }
}

bool CommunicationCost::is_uniform(const Stage& stage, const Instruction& instruction) const {
  if (instruction.op != Op::gather_parameters && instruction.op != Op::reduce_gradients) {
    return false;
  }
  if (program_.sharding == ParameterSharding::sharded) return true;
  if (!alike_ || instruction.transfers == 0) return false;
  const OptimizerLayout& optimizer = program_.optimizer;
  for (int layer = instruction.layer_begin; layer < instruction.layer_end; ++layer) {
    const int first = optimizer_stage(model_.model, optimizer, layer) * optimizer.dp;
    for (std::size_t i = 0; i < stage.devices.size(); ++i) {
      const int replica = stage.devices[i] / optimizer.tp - first;
      const int rank = static_cast<int>(i) % optimizer.tp;
      if (replica < 0 || replica >= optimizer.dp || stage.devices[i] % optimizer.tp != rank) {
        return false;
      }
    }
  }
  return true;
}

double CommunicationCost::reshard(const Instruction& instruction) const {
  const Collective operation =
      instruction.op == Op::gather_parameters ? Collective::all_gather : Collective::reduce_scatter;
  const OptimizerLayout& optimizer = program_.optimizer;
  const bool sharded = program_.sharding == ParameterSharding::sharded;
  double seconds = 0;
  for (int layer = instruction.layer_begin; layer < instruction.layer_end; ++layer) {
    const double bytes = width() * kProgramBytes * parameters_of(model_.model, layer);
    if (sharded) {
      seconds += group(operation, everyone_, bytes);
      continue;
    }
    // Every tensor-parallel rank has its own group, all at once; the worst placed one decides.
    const int first = optimizer_stage(model_.model, optimizer, layer) * optimizer.dp;
    double slowest = 0;
    for (int rank = 0; rank < optimizer.tp; ++rank) {
      std::vector<int> owners;
      for (int replica = 0; replica < optimizer.dp; ++replica) {
        owners.push_back((first + replica) * optimizer.tp + rank);
      }
      slowest = std::max(slowest, group(operation, owners, bytes / optimizer.tp));
    }
    seconds += slowest;
  }
  return seconds;
}

/// The instruction counts what the busiest device moves in all exchanges: all but its own shares.
double CommunicationCost::exchange(const Stage& stage, const Instruction& instruction) const {
  const double members = static_cast<double>(stage.devices.size());
  const double others = members - 1;
  if (others < 1) return 0;
  const double times = instruction.transfers / others;
  const double moved =
      width() * static_cast<double>(instruction.intra_node_bytes + instruction.inter_node_bytes);
  if (times <= 0) return 0;
  return times * group(Collective::all_to_all, stage.devices, moved * members / others / times);
}

/// Messages one after the other, inside the node and between nodes in proportion to their bytes.
double CommunicationCost::messages(const Instruction& instruction) const {
  const double near = width() * static_cast<double>(instruction.intra_node_bytes);
  const double far = width() * static_cast<double>(instruction.inter_node_bytes);
  double seconds = 0;
  for (const auto& [bytes, nodes] : {std::pair{near, 1}, {far, 2}}) {
    if (bytes <= 0) continue;
    const double count = instruction.transfers * bytes / (near + far);
    if (model_.profile.operators) {
      seconds += message_seconds(*model_.profile.operators, model_.cluster, count, bytes, nodes > 1,
                                 scale_);
      continue;
    }
    const LinkSpec& link = nodes > 1 ? network_.between : network_.inside;
    seconds += bytes / link.bandwidth_bytes_per_second + count * link.latency_seconds;
  }
  // Messages of one instruction are handed over in one call.
  if (seconds > 0 && !model_.profile.operators) seconds += message_call_seconds(network_);
  return seconds;
}

double CommunicationCost::group(Collective operation, const std::vector<int>& devices,
                                double bytes) const {
  const ClusterSpec& cluster = model_.cluster;
  const GroupPlacement place =
      group_placement(devices, std::max(1, program_.devices_per_node), cluster.cards_per_node());
  if (place.members < 2) return 0;
  if (const auto& operators = model_.profile.operators) {
    FitUse use;
    if (const auto measured =
            collective_seconds(operators->fits, operation, place.members, place.nodes, bytes, use,
                               scale_.latency, scale_.bandwidth)) {
      return *measured;
    }
  }
  if (cluster.levels.empty() || place.nodes == 1) {
    return collective_cost(operation, place, bytes, network_, algorithm_).seconds();
  }
  // The farthest two say through how many switches a step between nodes goes.
  CollectiveNetwork network = network_;
  for (const int device : devices) {
    if (device / program_.devices_per_node == devices.front() / program_.devices_per_node) continue;
    network.between.latency_seconds =
        std::max(network.between.latency_seconds,
                 latency_seconds(topology_, route(topology_, devices.front(), device)));
  }
  return collective_cost(operation, place, bytes, network, algorithm_).seconds();
}

double CommunicationCost::width() const {
  return model_.profile.operators ? model_.profile.operators->element_bytes / kProgramBytes : 1;
}

}  // namespace hydraulis::detail
