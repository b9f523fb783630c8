#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "planner/program/program.h"
#include "planner/program/reshard.h"
#include "runtime/optimizer_shard.h"
#include "runtime/stage_parameters.h"

namespace hydraulis {

/// What one rank sends and receives to turn the optimizer layout into a program's stage layouts,
/// by layer: parameters flow from `gives` to others and arrive by `takes`; gradients the other way.
struct LayerTransfers {
  std::vector<Transfer> gives;  ///< this rank owns the master copy
  std::vector<Transfer> takes;  ///< this rank's stage computes with it
};
using RankTransfers = std::map<int, LayerTransfers>;

/// Transfers of every stage of the program that touch `rank`, in one order on all ranks.
RankTransfers rank_transfers(const ModelSpec& model, const Program& program, int rank);

/// Moves parameters out ahead of an iteration's use and gradients back during its last backwards,
/// layer by layer, beside the computation (optimization–propagation disaggregation).
class ParameterFlow {
 public:
  /// `weights` and `gradients` of this rank's stage, or nullptr for a rank without one.
  ParameterFlow(const Backend& backend, OptimizerShard& shard, const RankTransfers& transfers,
                StageParameters* weights, StageParameters* gradients);

  /// Starts all transfers of parameters, first layers first.
  void start_gather();
  /// Later work on `stream` sees the layer's parameters.
  void wait_for_layer(int layer, Stream& stream);
  bool gathered(int layer) const;
  double gathered_seconds(int layer) const;

  /// Gradients of this stage's `layer` are complete: they leave now, as do those that this rank
  /// takes in for other stages' layers above it. Call in descending order of layers.
  void layer_complete(int layer, Stream& compute);
  /// Whatever is left of the reduction; the shard's gradients are whole afterwards.
  void finish_reduction(Stream& compute);

 private:
  struct Incoming {
    const Transfer* transfer;
    DeviceBuffer buffer;
  };
  struct Reduction {
    int layer = 0;
    std::shared_ptr<Event> event;
    std::vector<Incoming> incoming;
  };
  void start_reduction(int layer);
  void add_up(Reduction& reduction, Stream& compute);
  void add_finished(Stream& compute);

  Backend backend_;
  OptimizerShard& shard_;
  const RankTransfers& transfers_;
  StageParameters* weights_;
  StageParameters* gradients_;
  std::unique_ptr<Stream> stream_;
  std::map<int, std::shared_ptr<Event>> gathers_;
  std::vector<int> left_;  ///< layers whose reduction has not started, the next one last
  std::vector<Reduction> running_;
  std::size_t first_running_ = 0;
};

}  // namespace hydraulis
