#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodel/collective_cost.h"
#include "costmodel/compose.h"
#include "costmodel/cost_model.h"
#include "planner/program/program.h"
#include "sim/costing.h"
#include "sim/topology.h"

namespace hydraulis::detail {

/// Which collectives are taken and whose table, for people.
std::string collectives_text(const CostModel& model, const CostingOptions& options);

/// Parameters of a layer as reshard instructions number them.
double parameters_of(const ModelSpec& model, int layer);

/// Seconds of a program's instructions that move data, as collectives of a library over the groups
/// that really take part:
///   - gather_parameters and reduce_gradients are an all-gather or reduce-scatter over the owners
///     where every device that computes with a layer owns a part of it and holds the same shard
///     (homogeneous strategies that lie as the optimizer layout does, and sharded parameters, whose
///     group is every device), else messages from each owner in turn;
///   - all_to_all: over the stage's devices; sends: one message; gradient_norm and barrier: an
///     all-reduce of 8 bytes over all devices.
/// Operations that were measured take their curves, the others collective_cost().
class CommunicationCost {
 public:
  /// `options.collectives` must be set. All must outlive it.
  CommunicationCost(const Program& program, const CostModel& model, const CostingOptions& options);

  double seconds(const Stage& stage, const Instruction& instruction) const;
  /// gradient_norm and barrier.
  double global_seconds() const { return global_seconds_; }
  /// Whether the instruction is a collective of a library, which copies and adds by itself.
  bool is_uniform(const Stage& stage, const Instruction& instruction) const;

 private:
  double reshard(const Instruction& instruction) const;
  double exchange(const Stage& stage, const Instruction& instruction) const;
  double messages(const Instruction& instruction) const;
  double group(Collective operation, const std::vector<int>& devices, double bytes) const;
  double width() const;

  const Program& program_;
  const CostModel& model_;
  CollectiveNetwork network_;
  TrafficScale scale_;
  CollectiveAlgorithm algorithm_;
  Topology topology_;
  std::vector<int> everyone_;
  bool alike_ =
      false;  ///< all pipelines have the optimizer layout's tensor parallelism and replicas
  double global_seconds_ = 0;
};

}  // namespace hydraulis::detail
