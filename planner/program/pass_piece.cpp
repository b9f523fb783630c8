#include "planner/program/pass_piece.h"

namespace hydraulis {

PassPiece piece_of(const Stage& stage, const Instruction& instruction) {
  const LayerRange run = layers_of(stage, instruction.chunk);
  const LayerRange own{instruction.layer_begin, instruction.layer_end};
  if (own == run || own.begin >= own.end) return {run};
  const double layers = run.end - run.begin;
  return {own, layers > 0 ? (own.end - own.begin) / layers : 1, own.begin == run.begin,
          own.end == run.end};
}

}  // namespace hydraulis
