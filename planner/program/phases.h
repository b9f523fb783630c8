#pragma once

#include <map>
#include <vector>

#include "planner/program/placement.h"
#include "planner/program/program.h"
#include "planner/program/reshard.h"

namespace hydraulis {

/// What moves for layers [layer_begin, layer_end) of one stage; of several layers only where
/// nothing moves at all.
struct LayerTraffic {
  int layer_begin = 0;
  int layer_end = 0;
  ReshardSummary summary;
};

/// Parameters that a stage needs before its first forward and gradients that leave it after its
/// last backward, in the order in which they travel.
struct StageTraffic {
  std::vector<LayerTraffic> gather;
  std::vector<LayerTraffic> reduce;
};

/// Places the pipelines of every phase on the whole cluster (place()).
Placement place_phases(const BatchPlan& plan, const ClusterSpec& cluster);

/// Whether every device of the stage computes with the very same parameters in another phase too.
bool same_parameters(const Program& program, const Stage& stage, int phase);

/// Whether an instruction that moves parameters or gradients finds or leaves all of them where they
/// are, because the next phase computes with them as this one does.
bool stays_in_place(const Program& program, const Stage& stage, const Instruction& instruction);

/// Works out the exchange of parameters and gradients of a program whose stages stand in their
/// places. The first phase gathers from the optimizer layout, a later one from what the phase
/// before it computed with (a device's own copy first, then its node). Gradients go to the
/// optimizer layout at the end of a phase; where every device of the stage holds the very same
/// layers and shards in the next phase they stay and are added to there.
class PhaseTraffic {
 public:
  PhaseTraffic(const Program& program, const ModelSpec& model);
  StageTraffic of(int stage);

  // What the runtime moves, which of() sums up; `layer` is one of the stage's.

  /// Parameters on their way to the stage.
  std::vector<Transfer> gather(int stage, int layer);
  /// Optimizer layout → stage: the gradients' way home is the same with source and destination
  /// exchanged.
  std::vector<Transfer> home(int stage, int layer);
  /// Whether the stage's gradients stay for the next phase.
  bool keeps_gradients(int stage) const;

 private:
  /// What a device computes with in a phase.
  struct Part {
    int tp = 1;
    int rank = 0;
    int layer_begin = 0;
    int layer_end = 0;
    bool operator==(const Part&) const = default;
  };
  /// The stage of each pipeline of a phase that holds a layer: layers alike in it move alike.
  using Holders = std::vector<int>;

  Holders holders(int phase, int layer) const;
  const TransferPlanner& source(int phase, int layer);
  std::vector<LayerTraffic> from_phase(int phase, const Stage& stage, int tp);

  const Program& program_;
  const ModelSpec& model_;
  GatherPlanner optimizer_;
  std::vector<std::map<int, Part>> parts_;                     ///< [phase][device]
  std::vector<std::map<Holders, TransferPlanner>> sources_;    ///< [phase], decoder layers
  std::vector<std::map<int, TransferPlanner>> outer_sources_;  ///< [phase], embedding and head
};

}  // namespace hydraulis
