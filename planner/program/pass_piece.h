#pragma once

#include "planner/program/program.h"

namespace hydraulis {

/// The part of a run of layers that a forward, backward or recomputation goes through: the whole
/// run, or, where the exchange of parameters and gradients overlaps with it, a few of its layers.
/// The pieces of a micro-batch's pass on a run are instructions of their own, forwards in ascending
/// and backwards in descending order of layers.
struct PassPiece {
  LayerRange layers;
  double share = 1;        ///< of the run's layers; 1 for a run without layers
  bool starts_run = true;  ///< from the run's first layer on, and the embedding if that is here
  bool ends_run = true;    ///< to the run's last layer, and the head if that is here
};

/// Programs made by hand may leave an instruction's layers out: then it goes through all of its
/// run.
PassPiece piece_of(const Stage& stage, const Instruction& instruction);

}  // namespace hydraulis
