#pragma once

#include <map>
#include <vector>

#include "costmodel/model_spec.h"
#include "planner/program/program.h"
#include "planner/program/reshard.h"

namespace hydraulis {

/// What one rank sends and receives for a layer of parameters: they flow from `gives` to others and
/// arrive by `takes`. Gradients go the other way.
struct LayerTransfers {
  std::vector<Transfer> gives;  ///< this rank holds what another one needs
  std::vector<Transfer> takes;  ///< this rank's stage computes with it
};
using RankTransfers = std::map<int, LayerTransfers>;  ///< by layer

/// One rank's part in what a phase moves: parameters before it, from the optimizer layout in the
/// first phase and else from what the phase before computed with; gradients after it, home to the
/// optimizer layout, unless they stay on the stage's devices for the next phase.
struct PhaseTransfers {
  RankTransfers gather;
  RankTransfers reduce;
  bool keeps_gradients = false;  ///< those of this rank's stage
};

/// Transfers of every phase of the program that touch `rank`, in one order on all ranks: those
/// that the program's instructions count (planner/program/phases.h).
std::vector<PhaseTransfers> phase_transfers(const ModelSpec& model, const Program& program,
                                            int rank);

}  // namespace hydraulis
