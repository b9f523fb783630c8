#pragma once

#include <memory>
#include <string>
#include <vector>

#include "planner/program/program.h"
#include "runtime/parameter_flow.h"
#include "runtime/process_groups.h"
#include "runtime/stage_model.h"

namespace hydraulis {

/// The streams that a rank executes programs with.
class RankStreams {
 public:
  explicit RankStreams(const Backend& backend);
  Stream& of(StreamKind kind) const {
    return kind == StreamKind::compute ? *compute_ : *others_[static_cast<std::size_t>(kind)];
  }
  Stream& compute() const { return *compute_; }
  Stream& ring() const { return *ring_; }

 private:
  ComputeStream compute_;
  std::vector<std::unique_ptr<Stream>> others_;  ///< by StreamKind, all but the computing one
  std::unique_ptr<Stream> ring_;
};

/// One rank's stage in one phase of a program: its place, its memory, its model.
struct RankStage {
  int stage = -1;  ///< global index; −1: the phase does not use this rank, all pointers are empty
  int index = 0;   ///< within the stage's devices
  std::unique_ptr<StageParameters> weights;
  std::unique_ptr<StageParameters> gradients;
  std::unique_ptr<StageModel> model;
};

/// Where a rank stands in a phase, without memory or model.
RankStage find_place(const Program& program, int phase, int rank);

/// What decides the parameters that a rank holds: the same text, the same memory.
std::string held_parameters(const Program& program, const RankStage& place);

/// Memory of a stage's parameters or, of the wide type, of its gradients.
std::unique_ptr<StageParameters> stage_memory(const Backend& backend, DataType type,
                                              const DecoderSpec& decoder, const Program& program,
                                              const RankStage& place);

/// Makes the model of a stage that has its memory, and the groups it talks in; every rank of the
/// stage calls it, in the order of phases.
void make_model(RankStage& here, const Program& program, const Backend& backend,
                const DecoderSpec& decoder, ProcessGroups& groups, const RankStreams& streams);

}  // namespace hydraulis
