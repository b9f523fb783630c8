#include "sim/costing.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>

#include "base/error.h"
#include "costmodel/compose.h"
#include "costmodel/host_states.h"
#include "planner/program/overlap_cost.h"
#include "planner/program/pass_piece.h"
#include "planner/program/phases.h"
#include "planner/schedule_work.h"
#include "sim/communication_cost.h"
#include "sim/overlap_slowdown.h"

namespace hydraulis {
namespace {

/// Steps of a tree over `members`: ⌈log₂ members⌉.
int tree_steps(int members) {
  return members > 1 ? std::bit_width(static_cast<unsigned>(members) - 1U) : 0;
}

void check(const CostModel& model, const CostingOptions& options) {
  if (!(options.bandwidth_scale > 0) || !std::isfinite(options.bandwidth_scale)) {
    throw InputError("bandwidth scale: {}; expected a number above 0", options.bandwidth_scale);
  }
  if (!(options.latency_scale >= 0) || !std::isfinite(options.latency_scale)) {
    throw InputError("latency scale: {}; expected a number of at least 0", options.latency_scale);
  }
  const auto positive = [&](double value, const char* what) {
    if (!(value > 0) || !std::isfinite(value)) {
      throw InputError("cluster '{}': {} is {}; expected a number above 0", model.cluster.name,
                       what, value);
    }
  };
  if (options.no_communication) return;
  positive(model.cluster.intra_node.bandwidth_bytes_per_second, "bandwidth inside a node");
  if (model.cluster.nodes > 1) {
    positive(model.cluster.inter_node.bandwidth_bytes_per_second, "bandwidth between nodes");
  }
  positive(model.cluster.device.memory_bandwidth_bytes_per_second, "memory bandwidth");
}

/// Bytes that programs count for a number of a parameter, gradient or activation.
constexpr double kProgramBytes = 2;

class Coster {
 public:
  Coster(const Program& program, const CostModel& model, const CostingOptions& options)
      : program_(program), model_(model), options_(options) {
    for (const PipelineProgram& pipeline : program.pipelines) {
      auto& sizes = sizes_.emplace_back();
      for (const MicroBatch& batch : pipeline.micro_batches) {
        sizes.push_back({batch.sum_squares(), static_cast<double>(batch.tokens() + batch.padding)});
      }
    }
    const double owned = std::ceil(static_cast<double>(parameter_count(model.model)) /
                                   std::max(1, model.optimizer.devices()));
    optimizer_seconds_ = owned * kOptimizerBytesPerParameter /
                         model.cluster.device.memory_bandwidth_bytes_per_second;
    global_seconds_ = 2 * options.latency_scale *
                      (tree_steps(std::min(program.devices, program.devices_per_node)) *
                           model.cluster.intra_node.latency_seconds +
                       tree_steps(nodes()) * model.cluster.inter_node.latency_seconds);
    if (options.collectives && !options.no_communication) {
      collectives_.emplace(program, model, options);
      global_seconds_ = collectives_->global_seconds();
    }
    if (const auto& operators = model.profile.operators) {
      optimizer_seconds_ = optimizer_seconds(*operators, owned);
      if (!collectives_) {
        global_seconds_ = barrier_seconds(*operators, model.cluster, program.devices, scale());
      }
      norm_seconds_ = sum_squares_seconds(*operators, owned);
      const auto factor = [&](CorrectedTime time) { return correction(operators->profile, time); };
      optimizer_seconds_ *= factor(CorrectedTime::optimizer_step);
      norm_factor_ = factor(CorrectedTime::gradient_norm);
      gather_factor_ = factor(CorrectedTime::gather_parameters);
      reduce_factor_ = factor(CorrectedTime::reduce_gradients);
    }
    if (model.states == OptimizerStates::host) {
      optimizer_seconds_ = host_step_seconds(model.cluster, owned);
    }
  }

  std::vector<double> stage(const Stage& stage) {
    const Scheme& scheme = program_.pipelines[stage.pipeline].scheme;
    const int chunks = chunks_of(stage);
    costs_.clear();
    if (chunks == 1) costs_.push_back(pass_cost(model_, scheme, stage.index));
    for (int chunk = 0; chunks > 1 && chunk < chunks; ++chunk) {
      const LayerRange layers = layers_of(stage, chunk);
      costs_.push_back(pass_cost(model_, scheme, layers.end - layers.begin,
                                 stage.index == 0 && chunk == 0,
                                 stage.index + 1 == scheme.pp && chunk + 1 == chunks));
    }
    std::vector<double> seconds;
    seconds.reserve(stage.instructions.size());
    for (const Instruction& instruction : stage.instructions) {
      seconds.push_back(one(stage, instruction));
    }
    return seconds;
  }

 private:
  struct Size {
    double sum_squares;
    double tokens;
  };

  int nodes() const {
    return program_.devices_per_node > 0
               ? (program_.devices + program_.devices_per_node - 1) / program_.devices_per_node
               : 1;
  }

  TrafficScale scale() const { return {options_.latency_scale, options_.bandwidth_scale}; }

  double one(const Stage& stage, const Instruction& instruction) const {
    switch (instruction.op) {
      case Op::forward:
      case Op::recompute:
        return passes(stage, instruction).forward;
      case Op::backward:
        return passes(stage, instruction).backward();
      case Op::backward_input:
        return passes(stage, instruction).backward_input;
      case Op::backward_weight:
        return passes(stage, instruction).backward_weight;
      default:
        return options_.no_communication ? 0 : other(stage, instruction);
    }
  }

  double other(const Stage& stage, const Instruction& instruction) const {
    switch (instruction.op) {
      case Op::send_activation:
      case Op::receive_activation:
      case Op::send_gradient:
      case Op::receive_gradient:
        return model_.profile.contains_pipeline_communication ? 0 : moved(stage, instruction);
      case Op::gather_parameters:
        return gather_factor_ * (moved(stage, instruction) + kept(stage, instruction));
      case Op::reduce_gradients:
        return reduce_factor_ * (moved(stage, instruction) + kept(stage, instruction));
      case Op::all_to_all:
        return moved(stage, instruction);
      case Op::gradient_norm:
        return norm_factor_ * (global_seconds_ + norm_seconds_);
      case Op::barrier:
        return global_seconds_;
      case Op::optimizer_step:
        return optimizer_seconds_;
      default:
        throw InputError("cluster '{}' describes no link to the host, so {} has no cost",
                         model_.cluster.name, to_string(instruction.op));
    }
  }

  PassSeconds passes(const Stage& stage, const Instruction& instruction) const {
    const auto& sizes = sizes_[stage.pipeline];
    const int index = instruction.micro_batch;
    if (index < 0 || static_cast<std::size_t>(index) >= sizes.size()) {
      throw InputError("pipeline {}: {} of micro-batch {}; expected one in [0, {})", stage.pipeline,
                       to_string(instruction.op), index, sizes.size());
    }
    const int chunk = instruction.chunk;
    if (chunk < 0 || static_cast<std::size_t>(chunk) >= costs_.size()) {
      throw InputError("pipeline {}: {} on run {} of a stage's layers; expected one in [0, {})",
                       stage.pipeline, to_string(instruction.op), chunk, costs_.size());
    }
    PassSeconds seconds = costs_[chunk].of(sizes[index].sum_squares, sizes[index].tokens);
    const double share = piece_of(stage, instruction).share;
    for (double* part : {&seconds.forward, &seconds.backward_input, &seconds.backward_weight}) {
      *part *= share;
    }
    return seconds;
  }

  double moved(const Stage& stage, const Instruction& instruction) const {
    if (collectives_) return collectives_->seconds(stage, instruction);
    const ClusterSpec& cluster = model_.cluster;
    const bool crosses = instruction.inter_node_bytes > 0;
    if (model_.profile.operators) return measured(instruction);
    const LinkSpec& far = crosses ? cluster.inter_node : cluster.intra_node;
    const ExchangeShare share =
        instruction.op == Op::all_to_all ? exchange_share(cluster) : ExchangeShare{};
    double seconds = options_.latency_scale * far.latency_seconds * instruction.transfers;
    seconds +=
        static_cast<double>(instruction.intra_node_bytes) /
        (options_.bandwidth_scale * share.inside * cluster.intra_node.bandwidth_bytes_per_second);
    if (crosses) {
      seconds += static_cast<double>(instruction.inter_node_bytes) /
                 (options_.bandwidth_scale * share.between *
                  cluster.inter_node.bandwidth_bytes_per_second);
    }
    return seconds;
  }

  /// The same by the measured curves of sends.
  double measured(const Instruction& instruction) const {
    const MeasuredOperators& operators = *model_.profile.operators;
    const double width = operators.element_bytes / kProgramBytes;
    const double near = width * static_cast<double>(instruction.intra_node_bytes);
    const double far = width * static_cast<double>(instruction.inter_node_bytes);
    if (near + far <= 0) return 0;
    const auto seconds = [&](double bytes, bool across) {
      const double share = bytes / (near + far);
      return message_seconds(operators, model_.cluster, share * instruction.transfers, bytes,
                             across, scale());
    };
    return seconds(near, false) + seconds(far, true);
  }

  /// What a reshard does to numbers that do not leave the device: all of a layer's gradients are
  /// added somewhere, and parameters that a device owns itself are copied.
  double kept(const Stage& stage, const Instruction& instruction) const {
    if (!model_.profile.operators || stays_in_place(program_, stage, instruction)) return 0;
    if (collectives_ && collectives_->is_uniform(stage, instruction)) return 0;
    const MeasuredOperators& operators = *model_.profile.operators;
    const int tp = program_.pipelines[stage.pipeline].scheme.tp;
    double seconds = 0;
    for (int layer = instruction.layer_begin; layer < instruction.layer_end; ++layer) {
      const double held = detail::parameters_of(model_.model, layer) / tp;
      if (instruction.op == Op::reduce_gradients) {
        seconds += add_seconds(operators, held);
        continue;
      }
      const double taken =
          static_cast<double>(instruction.intra_node_bytes + instruction.inter_node_bytes) /
          kProgramBytes;
      seconds += copy_seconds(operators, std::max(0.0, held - taken) * operators.element_bytes);
    }
    return seconds;
  }

  const Program& program_;
  const CostModel& model_;
  const CostingOptions& options_;
  std::vector<std::vector<Size>> sizes_;  ///< [pipeline][micro-batch]
  std::optional<detail::CommunicationCost> collectives_;
  double optimizer_seconds_ = 0;
  double global_seconds_ = 0;
  double norm_seconds_ = 0;
  double norm_factor_ = 1;  ///< as measured runs have shown it, and so the next two
  double gather_factor_ = 1;
  double reduce_factor_ = 1;
  std::vector<PassCost> costs_;  ///< of the stage at hand, by run of layers
};

}  // namespace

Durations instruction_durations(const Program& program, const CostModel& model,
                                const CostingOptions& options) {
  check(model, options);
  Coster coster(program, model, options);
  Durations durations;
  for (const Stage& stage : program.stages) durations.seconds.push_back(coster.stage(stage));
  if (!options.no_communication) detail::slow_overlapped(program, model.cluster, durations);
  return durations;
}

NetworkUse parse_network_use(const std::string& text, const std::string& where) {
  for (const NetworkUse use : {NetworkUse::automatic, NetworkUse::closed_form, NetworkUse::flows}) {
    if (text == to_string(use)) return use;
  }
  throw InputError("{}: '{}', expected auto, closed-form or flows", where, text);
}

const char* to_string(NetworkUse use) {
  switch (use) {
    case NetworkUse::automatic:
      return "auto";
    case NetworkUse::closed_form:
      return "closed-form";
    case NetworkUse::flows:
      return "flows";
  }
  return "unknown";
}

bool shares_links(const ClusterSpec& cluster, const CostingOptions& options) {
  if (cluster.cores_per_node > 0 || options.network == NetworkUse::closed_form) return false;
  return options.network == NetworkUse::flows || !cluster.levels.empty() ||
         cluster.cards_per_node() * cluster.card_bandwidth() <
             cluster.devices_per_node * cluster.inter_node.bandwidth_bytes_per_second ||
         cluster.node_inside_bytes_per_second > 0;
}

ReplayOptions replay_options(const CostModel& model, const CostingOptions& options) {
  ReplayOptions replaying;
  // The planner's makespan, which a replay without communication is to equal, knows nothing of
  // shared cores.
  if (options.no_communication) return replaying;
  replaying.cores_per_node = model.cluster.cores_per_node;
  if (shares_links(model.cluster, options)) {
    replaying.network = std::make_shared<const Topology>(
        make_topology(model.cluster, options.bandwidth_scale, options.latency_scale));
    if (model.profile.operators) {
      replaying.wire_bytes = model.profile.operators->element_bytes / kProgramBytes;
    }
  }
  return replaying;
}

std::vector<std::string> costing_assumptions(const CostModel& model,
                                             const CostingOptions& options) {
  std::vector<std::string> lines;
  const Profile& profile = model.profile;
  std::string contained;
  if (profile.contains_tensor_parallel_communication) contained = "tensor-parallel communication";
  if (profile.contains_pipeline_communication) {
    contained += std::string(contained.empty() ? "" : " and ") + "pipeline communication";
  }
  lines.push_back(fmt::format("times: profile '{}'{}, taken to contain {}", profile.name,
                              profile.analytic ? " (analytic)" : "",
                              contained.empty() ? "no communication" : contained));
  if (options.no_communication) {
    lines.push_back("network: none; transfers, resharding and the optimizer step take no time");
    return lines;
  }
  if (model.cluster.cores_per_node > 0) {
    lines.push_back(fmt::format(
        "cores: {} a node, shared by its {} devices, which compute and move data with them",
        model.cluster.cores_per_node, model.cluster.devices_per_node));
  }
  if (profile.operators && !profile.operators->fits.collectives.empty()) {
    lines.push_back(
        "network: measured curves of sends and collectives where the profile has them, without "
        "contention");
  }
  if (options.collectives) lines.push_back(detail::collectives_text(model, options));
  if (overlap_slowdown(model.cluster) > 0) {
    lines.push_back(fmt::format(
        "overlap: computation beside gathers and reductions takes {:.3g} times as long (arXiv "
        "2507.03114)",
        1 + overlap_slowdown(model.cluster)));
  }
  const auto link = [&](const char* name, const LinkSpec& spec) {
    return fmt::format("{} {:.4g} GB/s and {:.3g} us", name,
                       options.bandwidth_scale * spec.bandwidth_bytes_per_second / 1e9,
                       options.latency_scale * spec.latency_seconds * 1e6);
  };
  std::string network =
      "network: per device and direction, " + link("inside a node", model.cluster.intra_node);
  if (model.cluster.nodes > 1) network += ", " + link("between nodes", model.cluster.inter_node);
  if (model.states == OptimizerStates::host) lines.push_back(host_step_text(model.cluster));
  lines.push_back(network +
                  (model.cluster.origin.empty() ? "" : " (" + model.cluster.origin + ")") +
                  (shares_links(model.cluster, options) ? ", shared by the flows that use it"
                                                        : ", without contention"));
  return lines;
}

}  // namespace hydraulis
